// Measures compressed calls of one thread's ranks: for each size, type, operation and root a vector
// of gradients goes through its own compressors, out of place and in place.
#pragma once

#include <cstddef>
#include <vector>

#include "compress/spec.hpp"
#include "frame/collective.hpp"
#include "frame/compressors.hpp"
#include "frame/gradients.hpp"
#include "frame/memory.hpp"
#include "frame/options.hpp"
#include "frame/report.hpp"
#include "frame/reporter.hpp"
#include "frame/team.hpp"

namespace pith_perf {

class CompressedTiming {
 public:
  // `reporter`: null on all threads but the first. Throws std::runtime_error if the specification
  // or the gradients' folder is invalid.
  CompressedTiming(const Options& options, const Collective& collective, const Team& team,
                   Reporter* reporter);

  // Every size, type, operation and root; returns the same summary on every thread.
  Summary run();

 private:
  // The subject of one table line.
  struct Case {
    pithDataType_t type;
    pithRedOp_t op;
    int root;
    Counts counts;
    std::size_t bytes;
    bool in_place;
  };

  void run_sizes(Case at);
  Case sized(Case at, std::size_t bytes) const;
  void run_size(Case at);
  Measured measure(const Case& at);
  std::vector<double> time_iterations(const Case& at, const Compressors& compressors,
                                      Compressed& what);
  // What the compressors tell of a call, or what a move is by its arguments alone.
  void add_statistics(const Compressors& compressors, Compressed& what) const;
  void add_move(const Case& at, Compressed& what) const;
  double plain_bytes(const Case& at) const;
  void check(const Case& at, Measured& measured);
  void put_gradients(const Case& at, std::size_t step);
  void call(const Case& at, const Compressors& compressors, std::size_t step);
  CallArgs arguments(const Case& at, int local, std::size_t step);
  std::byte* send_at(const Case& at, int local, std::size_t step);
  std::byte* recv_at(const Case& at, int local);

  const Options& options_;
  const Collective& collective_;
  const Team& team_;
  Reporter* reporter_;
  pith::Spec spec_;
  Gradients source_;
  std::vector<std::vector<float>> gradients_;  // of this thread's ranks, as float32
  std::vector<Memory> send_;                   // the same in the call's type
  std::vector<Memory> recv_;
  Summary summary_;
  std::int64_t bandwidths_ = 0;
};

}  // namespace pith_perf
