// Shared memory in which the rank processes leave their results for the launcher.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tools/demo/options.hpp"
#include "tools/demo/scheme_training.hpp"

namespace pith::demo {

inline constexpr std::size_t curve_points = 128;
inline constexpr std::size_t choices_most = 64;

// Written by one rank; read by the launcher after that rank has ended.
struct RankReport {
  double total_s;          // the training, evaluation included
  double communication_s;  // part of it spent inside calls of Pith
  std::uint64_t bytes;     // payload passed to collectives
  std::uint64_t hash;      // of the final parameters
  std::uint32_t collectives;
  std::uint32_t identical;  // 1: at each check all ranks' parameters had the same hash
  double accuracy;          // on the test set, 0 to 1

  // Only with a scheme of averaging.
  double loss;  // mean over the training set
  double density;
  double stepped_at_s;   // steady clock; atomic: the launcher reads it while the rank runs
  std::uint32_t points;  // of the curve
  std::array<CurvePoint, curve_points> curve;
  std::uint32_t choice_count;
  std::array<SchemeChoice, choices_most> choices;
};

// An anonymous file mapped by launcher and ranks: one report per rank, and snapshots of rank 0's
// parameters, one per checkpoint and the final ones.
class Board {
 public:
  // Throws std::system_error.
  static Board create(int ranks, std::size_t parameters);
  static Board attach(int fd, int ranks, std::size_t parameters);
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  int fd() const { return fd_; }
  std::span<RankReport> reports() const;
  std::span<float> snapshot(std::size_t checkpoint) const;
  std::span<float> final_parameters() const { return snapshot(checkpoints.size()); }

 private:
  Board(int fd, int ranks, std::size_t parameters);
  std::size_t bytes() const;

  int fd_;
  std::size_t ranks_;
  std::size_t parameters_;
  void* memory_;
};

}  // namespace pith::demo
