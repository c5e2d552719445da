// Elects the k largest elements of one piece of an accumulator, exactly, for DEFT. A histogram of
// the magnitudes tells which elements may be among them; the largest of those are kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/compressed.hpp"
#include "collectives/sparse/take_values.hpp"
#include "compress/deft/plan.hpp"

namespace pith {

// The elements stay in the accumulator.
class PieceElection {
 public:
  PieceElection(Call& call, const SparseCall& args, Compressor& compressor, const DeftPiece& piece);
  PieceElection(const PieceElection&) = delete;
  PieceElection& operator=(const PieceElection&) = delete;
  FrameArena& frame_arena() const { return call_.frame_arena(); }

  Task<Error> run();
  // In host memory.
  std::span<const std::uint32_t> indices() const;
  float smallest() const { return *smallest_; }

 private:
  using Look = Task<Error> (PieceElection::*)(Range part, MagnitudeHistogram* histogram);
  Task<Error> in_turns(Look look, MagnitudeHistogram* histogram);
  Task<Error> count_in(Range part, MagnitudeHistogram* histogram);
  void make_room(const MagnitudeHistogram& histogram);
  Task<Error> select(Range part, MagnitudeHistogram*);
  Fence keep();

  Call& call_;
  Compressor& compressor_;
  const DeftPiece& piece_;
  const std::size_t at_once_;
  const VectorQueue queue_;
  const Answer<PassResult> passed_;
  const Answer<float> smallest_;
  const Answer<double> squares_;
  Scratch indices_;
  Scratch values_;
  Scratch told_;  // host copy of a device's indices
  float floor_ = 0;
  std::size_t room_ = 0;
  std::size_t selected_ = 0;  // number of elements in both
  std::size_t count_ = 0;
};

}  // namespace pith
