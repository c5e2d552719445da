// Ranks, processes or threads, that synchronise in a shared anonymous mapping.
#include <fmt/core.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "bench_common.hpp"
#include "machine.hpp"
#include "processes.hpp"

namespace pith_bench {
namespace {

constexpr std::size_t share_bytes_max = 256;
constexpr int spins_before_yield = 1000;
constexpr int yields_between_clocks = 4096;
constexpr std::chrono::seconds barrier_limit(120);

// Zero-initialised by mmap; the atomics are lock-free, so they work across processes.
struct Meeting {
  std::atomic<int> arrived;
  std::atomic<unsigned> generation;
  char shared[share_bytes_max];
  double values[ranks_max];
};
static_assert(std::atomic<int>::is_always_lock_free);

class Mapping {
 public:
  Mapping() {
    constexpr int access = PROT_READ | PROT_WRITE;
    at_ = mmap(nullptr, sizeof(Meeting), access, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at_ == MAP_FAILED) throw std::runtime_error("no shared mapping for the ranks");
  }
  ~Mapping() { munmap(at_, sizeof(Meeting)); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  Meeting& meeting() const { return *static_cast<Meeting*>(at_); }

 private:
  void* at_;
};

void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

class SharedWorld final : public World {
 public:
  SharedWorld(int rank, int ranks, Meeting& meeting) : World(rank, ranks), meeting_(meeting) {}

  void barrier() override {
    const unsigned generation = meeting_.generation.load();
    if (meeting_.arrived.fetch_add(1) + 1 == ranks()) {
      meeting_.arrived.store(0);
      meeting_.generation.fetch_add(1);
      return;
    }
    for (int spin = 0; spin < spins_before_yield; ++spin) {
      if (meeting_.generation.load() != generation) return;
      pause();
    }
    const auto deadline = std::chrono::steady_clock::now() + barrier_limit;
    for (int yields = 1; meeting_.generation.load() == generation; ++yields) {
      sched_yield();
      if (yields % yields_between_clocks != 0) continue;
      if (std::chrono::steady_clock::now() < deadline) continue;
      throw std::runtime_error(fmt::format("other ranks missing for {} s", barrier_limit.count()));
    }
  }

  double max(double value) override {
    meeting_.values[rank()] = value;
    barrier();
    const double largest = *std::max_element(meeting_.values, meeting_.values + ranks());
    barrier();
    return largest;
  }

  void share(void* data, std::size_t bytes) override {
    if (bytes > share_bytes_max) throw std::runtime_error(fmt::format("shares {} bytes", bytes));
    if (rank() == 0) std::memcpy(meeting_.shared, data, bytes);
    barrier();
    if (rank() != 0) std::memcpy(data, meeting_.shared, bytes);
    barrier();
  }

 private:
  Meeting& meeting_;
};

int run_rank(const Settings& settings, const RankBody& body, int rank, Meeting& meeting) {
  try {
    if (settings.pin) pin_to_core(rank);
    SharedWorld world(rank, settings.ranks, meeting);
    body(world);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "rank {}: {}\n", rank, error.what());
    return 1;
  }
}

int run_threads(const Settings& settings, const RankBody& body, Meeting& meeting) {
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(settings.ranks));
  for (int rank = 0; rank < settings.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      if (run_rank(settings, body, rank, meeting) != 0) leave(1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return 0;
}

}  // namespace

int run_ranks(const Settings& settings, const RankBody& body) {
  const Mapping mapping;
  Meeting& meeting = mapping.meeting();
  if (settings.threads) return run_threads(settings, body, meeting);
  return run_processes(settings.ranks,
                       [&](int rank) { return run_rank(settings, body, rank, meeting); });
}

}  // namespace pith_bench
