// The measurement of compressed calls by one thread's ranks: for each size, type and operation a
// vector of gradients goes through compressors of its own, out of place and in place.
#pragma once

#include <cstddef>
#include <vector>

#include "compress/spec.hpp"
#include "frame/compressed_check.hpp"
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
  // `reporter`: null on all threads but the first. Throws std::runtime_error where the compressor's
  // specification or the gradients' folder are not to be used.
  CompressedTiming(const Options& options, const Team& team, Reporter* reporter);

  // Every size, type and operation; the same summary on every thread.
  Summary run();

 private:
  // What one line of the table is about.
  struct Case {
    pithDataType_t type;
    pithRedOp_t op;
    std::size_t count;
    std::size_t bytes;
    bool in_place;
  };

  void run_size(Case at);
  Measured measure(const Case& at);
  std::vector<double> time_iterations(const Case& at, const Compressors& compressors,
                                      Compressed& what);
  void check(const Case& at, Measured& measured);
  void put_gradients(const Case& at, std::size_t step);
  void call(const Case& at, const Compressors& compressors, std::size_t step);
  const std::byte* send_at(const Case& at, int local, std::size_t step) const;

  const Options& options_;
  const Team& team_;
  Reporter* reporter_;
  pith::Spec spec_;
  Gradients source_;
  std::vector<std::vector<float>> gradients_;  // of each rank of this thread, as float32
  std::vector<Memory> send_;                   // the same in the type of the call
  std::vector<Memory> recv_;
  Summary summary_;
  std::int64_t bandwidths_ = 0;
};

}  // namespace pith_perf
