#include "perf_main.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/coded/wire_coding.hpp"
#include "compress/scheme.hpp"
#include "frame/algorithms.hpp"
#include "frame/compressed_timing.hpp"
#include "frame/compressors.hpp"
#include "frame/listing.hpp"
#include "frame/meeting_point.hpp"
#include "frame/options.hpp"
#include "frame/reporter.hpp"
#include "frame/resources.hpp"
#include "frame/team.hpp"
#include "frame/timing.hpp"
#include "frame/watchdog.hpp"
#include "machine.hpp"
#include "processes.hpp"

namespace pith_perf {
namespace {

struct Program {
  const Options& options;
  const Collective& collective;
  std::span<const char* const> arguments;
};

int ranks_of(const Options& options, const Start& start) {
  return start.processes * options.threads * options.ranks_per_thread;
}

RankInfo info_of(int rank) {
  RankInfo info = {};
  info.rank = rank;
  info.process_id = getpid();
  info.core = std::max(sched_getcpu(), 0);
  gethostname(info.host, sizeof(info.host) - 1);
  std::strncpy(info.cpu, pith_bench::cpu_model().c_str(), sizeof(info.cpu) - 1);
  return info;
}

// One thread's part of the run; the team owns its communicators.
Summary run_team(const Program& program, Team& team, std::int64_t resident_before) {
  std::vector<RankInfo> mine;
  mine.reserve(static_cast<std::size_t>(team.size()));
  for (int local = 0; local < team.size(); ++local) {
    mine.push_back(info_of(team.first_rank() + local));
  }
  const std::vector<RankInfo> all = team.gather(std::span<const RankInfo>(mine));
  std::optional<Reporter> reporter;
  if (team.first_rank() == 0) {
    reporter.emplace(program.options, program.collective.program, program.arguments);
    const bool dense = program.options.compress.empty();
    reporter->start(all, dense ? algorithm_lines(program.options, program.collective, team.comm(0),
                                                 team.ranks())
                               : "");
  }
  if (!program.options.compress.empty()) {
    const Summary summary =
        CompressedTiming(program.options, program.collective, team, reporter ? &*reporter : nullptr)
            .run();
    team.close();
    if (reporter) reporter->finish(summary, {});
    return summary;
  }
  Timing timing(program.options, program.collective, team, reporter ? &*reporter : nullptr);
  const Summary summary = timing.run();
  Watchdog::rearm();
  const std::vector<Usage> usage = timing.usage(resident_before);
  team.close();
  if (reporter) reporter->finish(summary, usage);
  return summary;
}

int tell(const Program& program, int rank, const std::exception& error) {
  fmt::print(stderr, "{}: rank {}: {}\n", program.collective.program, rank, error.what());
  return 1;
}

// The process that failed has said why, and whoever started the ranks ends the others: only if
// nobody does within this time have they something to say.
constexpr std::chrono::seconds time_to_be_ended{2};

bool failed_elsewhere(const Team& team) {
  pithResult_t error = pithSuccess;
  return pithCommGetAsyncError(team.comm(0), &error) == pithSuccess && error == pithRemoteError;
}

// Only rank 0 reports wrong data by its status, since the first process to fail ends the others. A
// rank's error is printed before its abort reaches the others, which fail because of it.
int measure(const Program& program, Team& team, std::int64_t resident_before) {
  try {
    const Summary summary = run_team(program, team, resident_before);
    const bool good = summary.out_of_bounds == 0 && summary.fast_enough();
    return team.first_rank() == 0 && !good ? 1 : 0;
  } catch (const std::exception& error) {
    if (failed_elsewhere(team)) std::this_thread::sleep_for(time_to_be_ended);
    const int status = tell(program, team.first_rank(), error);
    team.abort();
    return status;
  }
}

int run_thread(const Program& program, const Start& start, int thread,
               std::vector<pithComm_t> comms) {
  const Options& options = program.options;
  const int number = start.process * options.threads + thread;
  const int first = number * options.ranks_per_thread;
  try {
    if (options.ranks * options.threads <= pith_bench::core_count() && options.ranks > 0) {
      pith_bench::pin_to_core(number);
    }
    const std::int64_t resident_before = resident_bytes();
    if (comms.empty()) {
      comms = join(start.id, first, options.ranks_per_thread, ranks_of(options, start));
    }
    Team team(std::move(comms), first, ranks_of(options, start));
    return measure(program, team, resident_before);
  } catch (const std::exception& error) {
    return tell(program, first, error);
  }
}

// The communicators of each thread, created by the calling thread; empty if each creates its own.
std::vector<std::vector<pithComm_t>> join_for_threads(const Options& options, const Start& start) {
  const auto threads = static_cast<std::size_t>(options.threads);
  std::vector<std::vector<pithComm_t>> each(threads);
  if (options.parallel_init || threads == 1) return each;
  const int here = options.threads * options.ranks_per_thread;
  const std::vector<pithComm_t> all =
      join(start.id, start.process * here, here, ranks_of(options, start));
  for (std::size_t i = 0; i < all.size(); ++i) each[i * threads / all.size()].push_back(all[i]);
  return each;
}

int run_process(const Program& program, const Start& start) {
  Watchdog::start(program.options.timeout_s, start.process);
  std::vector<std::vector<pithComm_t>> comms = join_for_threads(program.options, start);
  std::vector<std::thread> others;
  for (int thread = 1; thread < program.options.threads; ++thread) {
    others.emplace_back([&, thread] {
      const auto index = static_cast<std::size_t>(thread);
      if (run_thread(program, start, thread, std::move(comms[index])) != 0) pith_bench::leave(1);
    });
  }
  const int status = run_thread(program, start, 0, std::move(comms[0]));
  for (std::thread& other : others) other.join();
  return status;
}

void check_compressible(const Program& program) {
  const std::string& text = program.options.compress;
  if (text.empty()) return;
  if (program.collective.keeps_residual) {
    if (!spec_to_measure(text).scheme->averages_parameters) return;
    throw std::runtime_error(fmt::format(
        "--compress is {}, which averages parameters, expected a scheme that sums", text));
  }
  if (program.collective.compressed_call == nullptr) {
    throw std::runtime_error(fmt::format("--compress is {}, but {} has no compressed form", text,
                                         program.collective.name));
  }
  const auto coding = pith::WireCoding::of(spec_to_measure(text));
  if (!coding) throw std::runtime_error(fmt::format("--compress: {}", coding.error().message()));
}

void check_root(const Options& options, int ranks) {
  if (options.root < ranks) return;
  throw std::runtime_error(
      fmt::format("--root is {}, expected a rank below {}", options.root, ranks));
}

int run(const Program& program) {
  const Options& options = program.options;
  check_compressible(program);
  if (options.ranks == 0) {
    const Start start = start_from_environment();
    check_root(options, ranks_of(options, start));
    return run_process(program, start);
  }
  check_not_launched(options);
  check_root(options, options.ranks * options.threads * options.ranks_per_thread);
  IdPipe pipe;
  return pith_bench::run_processes(options.ranks, [&](int process) {
    try {
      return run_process(program, pipe.meet(process, options.ranks));
    } catch (const std::exception& error) {
      fmt::print(stderr, "{}: {}\n", program.collective.program, error.what());
      return 1;
    }
  });
}

std::string version_of(std::string_view program) {
  int library = 0;
  static_cast<void>(pithGetVersion(&library));
  return fmt::format("{} {}.{}.{}, of Pith {}.{}.{}", program, PITH_MAJOR, PITH_MINOR, PITH_PATCH,
                     library / 10000, library / 100 % 100, library % 100);
}

void set(const char* name, const std::string& value) {
  if (!value.empty()) setenv(name, value.c_str(), 1);
}

}  // namespace

int perf_main(int argc, char** argv, const Collective& collective) {
  CLI::App app(fmt::format("times {} of Pith as nccl-tests does", collective.name),
               std::string(collective.program));
  Options options;
  RawOptions raw;
  add_options(app, options, raw);
  app.set_version_flag("--version", version_of(collective.program));
  try {
    app.parse(argc, argv);
    finish_options(options, raw);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  if (options.algo == "list" || options.transport == "list") {
    fmt::print("{}", options.algo == "list" ? list_algorithms(collective.name) : list_transports());
    return 0;
  }
  const bool bare = !options.algo.empty() && options.algo.find(':') == std::string::npos;
  set("PITH_ALGO", bare ? fmt::format("{}:{}", collective.name, options.algo) : options.algo);
  set("PITH_TRANSPORT", options.transport);
  const std::span<const char* const> arguments(argv, static_cast<std::size_t>(argc));
  try {
    return run({options, collective, arguments});
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", collective.program, error.what());
    return 1;
  }
}

}  // namespace pith_perf
