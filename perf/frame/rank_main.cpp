#include "frame/rank_main.hpp"

#include <fmt/format.h>

#include <exception>

#include "machine.hpp"
#include "processes.hpp"

namespace pith_perf {

namespace {

int run_rank(const char* program, const Start& start,
             const std::function<void(const Start&)>& body) {
  try {
    body(start);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: rank {}: {}\n", program, start.process, error.what());
    return 1;
  }
}

}  // namespace

int run_ranks(const char* program, int ranks, bool pinned,
              const std::function<void(const Start&)>& body) {
  try {
    if (ranks == 0) return run_rank(program, start_from_environment(), body);
    IdPipe pipe;
    return pith_bench::run_processes(ranks, [&](int process) {
      if (pinned && ranks <= pith_bench::core_count()) pith_bench::pin_to_core(process);
      return run_rank(program, pipe.meet(process, ranks), body);
    });
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", program, error.what());
    return 1;
  }
}

}  // namespace pith_perf
