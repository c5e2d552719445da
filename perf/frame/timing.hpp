// The measurement of one thread's ranks: for each size, type, operation and root calls are timed
// and their results checked, out of place and in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "frame/collective.hpp"
#include "frame/data.hpp"
#include "frame/memory.hpp"
#include "frame/options.hpp"
#include "frame/report.hpp"
#include "frame/reporter.hpp"
#include "frame/resources.hpp"
#include "frame/team.hpp"

namespace pith_perf {

class Timing {
 public:
  // `reporter`: null on all threads but the first.
  Timing(const Options& options, const Collective& collective, const Team& team,
         Reporter* reporter);

  // Every size, type, operation and root; returns the same summary on every thread.
  Summary run();
  // For every rank and line, with --resources. `resident_before`: before communicators were
  // created.
  std::vector<Usage> usage(std::int64_t resident_before) const;

 private:
  // The subject of one table line.
  struct Case {
    pithDataType_t type;
    pithRedOp_t op;
    int root;
    Counts counts;
    std::size_t bytes = 0;  // of the larger buffer
  };

  void run_sizes(Case& at);
  Line line_of(const Case& at) const;
  Case sized(Case at, std::size_t bytes) const;
  Measured measure(const Case& at, bool in_place);
  double time_iterations(const Case& at, bool in_place);
  std::optional<std::int64_t> check(const Case& at, bool in_place);
  void count_resources(const Case& at);
  void call(const Case& at, bool in_place, int iteration);
  pithResult_t call_premultiplied(CallArgs args) const;
  void fill_buffers(const Case& at, bool in_place, unsigned number);
  std::int64_t count_wrong(const Case& at, bool in_place, unsigned number) const;
  Round round_of(const Case& at, unsigned number) const;
  Place place_of(const Case& at, int local) const;
  std::byte* send_at(int local, const Case& at, bool in_place) const;
  std::byte* recv_at(int local, const Case& at, bool in_place) const;

  const Options& options_;
  const Collective& collective_;
  const Team& team_;
  Reporter* reporter_;
  std::vector<Memory> send_;
  std::vector<Memory> recv_;
  unsigned rounds_ = 0;
  std::int64_t out_of_bounds_ = 0;  // failed checks, of all threads
  double bandwidth_sum_ = 0;
  std::int64_t bandwidths_ = 0;
  std::int64_t buffer_bytes_ = 0;     // resident
  std::vector<double> iteration_us_;  // of the last time_iterations(), with --per_iter_timing
  std::vector<Usage> usage_;          // of this thread's ranks, one per line
};

}  // namespace pith_perf
