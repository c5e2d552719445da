// The cost of safety for an 8-byte all-reduce between two threads: the call's digest, the flight
// recorder, the check for left-over messages, and the thread that watches for deaths. Three kinds
// of the same call run in turns, and the medians are compared:
//
//  bare          the algorithm on engine, mailbox and transport alone; digests are constants
//  guarded       the same, plus what a communicator adds to every call for safety
//  communicator  pith::Communicator, with its state checks and choice of algorithm
//
// The guards are also timed alone, on one core: on a busy machine only that figure is reliable. All
// kinds include the header of every message and the comparison of its digest, which share the cache
// line of an 8-byte payload. For the watching thread, which costs a call nothing, the program
// prints its share of a core. --bare, --guarded, --communicator and --guards run one kind alone,
// for a profiler.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "collectives/algorithm.hpp"
#include "control/call_recorder.hpp"
#include "core/clock.hpp"
#include "perf/bare_rank.hpp"
#include "startup/connect.hpp"

namespace pith {

Task<Error> allreduce_recursive_doubling(Call& call, CollectiveArgs args);

namespace {

constexpr int ranks = BareRank::ranks;

class Rank : public BareRank {
 public:
  Rank(int rank, const std::shared_ptr<LocalHub>& hub) : BareRank(rank, hub) {}

  void bare(const CollectiveArgs& args) { run(args, ++calls_, 1); }
  void guarded(const CollectiveArgs& args) {
    guard(args, [&](std::uint32_t number, std::uint64_t digest) { run(args, number, digest); });
  }
  // Only what guarded() does in addition to bare().
  void guards(const CollectiveArgs& args) {
    guard(args, [](std::uint32_t, std::uint64_t) {});
  }

 private:
  template <class Body>
  void guard(const CollectiveArgs& args, Body body) {
    if (comm_.revoked) return;
    const std::uint32_t number = ++calls_;
    const std::uint64_t digest = digest_of(args);
    recorder_.begin(number, digest, args);
    body(number, digest);
    recorder_.end(number, true);
    if (engine_.mailbox().find_left_over(comm_.id, number).peer >= 0) std::terminate();
  }
  void run(const CollectiveArgs& args, std::uint32_t number, std::uint64_t digest) {
    Call call(context_, number, digest);
    drive(allreduce_recursive_doubling(call, args));
  }

  CallRecorder recorder_;
};

constexpr std::array<std::string_view, 3> kinds = {"bare", "guarded", "communicator"};

struct Both {
  std::array<Rank, ranks>& ranks_of_ours;
  std::vector<std::unique_ptr<Communicator>>& communicators;

  void call(std::size_t kind, int rank, CollectiveArgs& args) {
    const auto place = static_cast<std::size_t>(rank);
    if (kind == 0) return ranks_of_ours[place].bare(args);
    if (kind == 1) return ranks_of_ours[place].guarded(args);
    if (communicators[place]->calls().run(args)) std::terminate();
  }
};

void pin(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(core), &set);
  sched_setaffinity(0, sizeof set, &set);
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

using Times = std::array<std::vector<double>, kinds.size()>;

// Both ranks run the same batches in the same order, so no further synchronisation is needed.
Times measure(Both both, std::optional<std::size_t> only, int batches, int calls) {
  Times times;
  const auto body = [&](int rank) {
    pin(rank);
    std::array<float, 2> send{1, 2};
    std::array<float, 2> recv{};
    CollectiveArgs args;
    args.collective = Collective::allreduce;
    args.send = {reinterpret_cast<std::byte*>(send.data()), sizeof send};
    args.recv = {reinterpret_cast<std::byte*>(recv.data()), sizeof recv};
    args.count = send.size();
    for (int batch = 0; batch < batches; ++batch) {
      for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
        if (only && kind != *only) continue;
        const std::uint64_t begin = monotonic_ns();
        for (int i = 0; i < calls; ++i) both.call(kind, rank, args);
        const double ns = static_cast<double>(monotonic_ns() - begin) / calls;
        if (rank == 0) times[kind].push_back(ns);
      }
    }
  };
  std::thread other(body, 1);
  body(0);
  other.join();
  return times;
}

// Nanoseconds.
double guards_alone(Rank& rank) {
  float send[2] = {};
  CollectiveArgs args;
  args.collective = Collective::allreduce;
  args.send = args.recv = {reinterpret_cast<std::byte*>(send), sizeof send};
  args.count = 2;
  std::vector<double> times;
  for (int batch = 0; batch < 101; ++batch) {
    constexpr int calls = 10'000;
    const std::uint64_t begin = monotonic_ns();
    for (int i = 0; i < calls; ++i) rank.guards(args);
    times.push_back(static_cast<double>(monotonic_ns() - begin) / calls);
  }
  return median(times);
}

// Share of a core used by all threads of this process while its communicators are idle.
double idle_share() {
  const auto cpu_s = [] {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  };
  constexpr double seconds = 3;
  const double before = cpu_s();
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  return (cpu_s() - before) / seconds;
}

void report(const Times& times, double guards, double share) {
  const double bare = median(times[0]);
  fmt::print("{:<14} {:>10} {:>14}\n", "", "ns a call", "beyond bare");
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    // Compared with the batch that ran just before, so that a disturbance affects one pair only.
    std::vector<double> beyond;
    for (std::size_t i = 0; i < times[0].size(); ++i) {
      beyond.push_back(times[kind][i] - times[0][i]);
    }
    fmt::print("{:<14} {:>10.1f} {:>14.1f}\n", kinds[kind], median(times[kind]), median(beyond));
  }
  fmt::print("the guards alone take {:.1f} ns\n", guards);
  fmt::print("the watching thread takes {:.4f} % of a core: {:.2f} ns of {:.0f}\n", 100 * share,
             share * bare, bare);
}

}  // namespace
}  // namespace pith

int main(int argc, char** argv) {
  using namespace pith;
  std::optional<std::size_t> only;
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    if (argc == 2 && std::string_view(argv[1]) == fmt::format("--{}", kinds[kind])) only = kind;
  }
  const bool guards_only = argc == 2 && std::string_view(argv[1]) == "--guards";
  if (argc > 2 || (argc == 2 && !only && !guards_only)) {
    fmt::print(stderr, "usage: safety_bench [--bare | --guarded | --communicator | --guards]\n");
    return 2;
  }
  const auto hub = LocalHub::create(ranks);
  auto made = make_communicators(ranks);
  if (!hub || !made) {
    fmt::print(stderr, "safety_bench: {}{}\n", hub.error().message(), made.error().message());
    return 1;
  }
  std::array<Rank, ranks> both{Rank(0, *hub), Rank(1, *hub)};
  if (guards_only) {
    fmt::print("the guards alone take {:.1f} ns\n", guards_alone(both[0]));
    return 0;
  }
  constexpr int batches = 61;
  constexpr int calls = 5'000;
  const Times times = measure({both, *made}, only, batches, calls);
  if (!only) {
    report(times, guards_alone(both[0]), idle_share());
  } else {
    fmt::print("{}: {:.1f} ns a call\n", kinds[*only], median(times[*only]));
  }
  return 0;
}
