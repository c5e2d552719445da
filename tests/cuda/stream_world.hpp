// Ranks whose calls run on streams: all of them are driven by one thread, which never waits inside
// a call.
#pragma once

#include <cstdlib>
#include <memory>
#include <vector>

#include "pith/pith.h"
#include "tests/cuda/device_world.hpp"

namespace pith::cuda::test {

inline constexpr std::size_t count = 3000;

inline StubCounters counters() {
  StubCounters now;
  pithStubCounters(&now);
  return now;
}

// Ranks of one thread, each with two streams and two pairs of buffers.
struct Rank {
  pithComm_t comm = nullptr;
  Stream stream;
  Stream other;
  DeviceMemory send{count * 4};
  DeviceMemory recv{count * 4};
  DeviceMemory other_send{count * 4};
  DeviceMemory other_recv{count * 4};
};

struct World {
  explicit World(int n, const char* algorithm = nullptr) : passed(static_cast<std::size_t>(n) * 2) {
    if (algorithm) setenv("PITH_ALGO", algorithm, 1);
    setenv("PITH_CHUNK", "2048", 1);
    std::vector<pithComm_t> comms(static_cast<std::size_t>(n));
    REQUIRE(pithCommInitAll(comms.data(), n, nullptr) == pithSuccess);
    unsetenv("PITH_ALGO");
    unsetenv("PITH_CHUNK");
    for (const pithComm_t comm : comms) {
      ranks.push_back(std::make_unique<Rank>());
      ranks.back()->comm = comm;
    }
  }
  ~World() {
    for (const auto& rank : ranks) pithCommDestroy(rank->comm);
    CHECK(counters().pageable_copies == pageable_copies);  // none of its kernels could read that
  }
  // Waits without a call that synchronises: both streams of all ranks write a word.
  void finish(bool others = true) {
    ++passes;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      OK(cu().write_value64(ranks[r]->stream, passed.at(2 * r), passes, 0));
      if (others) OK(cu().write_value64(ranks[r]->other, passed.at(2 * r + 1), passes, 0));
    }
    for (std::size_t i = 0; i < 2 * ranks.size(); ++i) {
      if (i % 2 == 1 && !others) continue;
      while (passed[i].load(std::memory_order_acquire) != passes) std::this_thread::yield();
    }
  }
  std::vector<std::unique_ptr<Rank>> ranks;
  const std::uint64_t pageable_copies = counters().pageable_copies;
  Words passed;
  std::uint64_t passes = 0;
};

inline std::uint32_t value(std::size_t rank, std::size_t i, unsigned round) {
  return static_cast<std::uint32_t>((i + 1) * 2654435761u + rank * 40503u + round * 69069u);
}
// One block a rank; on the stub the host may look into it.
struct Blocks {
  explicit Blocks(std::size_t blocks) : memory(blocks * count * 4) {}
  std::uint32_t* at(std::size_t block = 0) const {
    return memory.as<std::uint32_t>() + block * count;
  }
  DeviceMemory memory;
};
inline std::uint32_t value_of(std::size_t rank, std::size_t block, std::size_t i) {
  return value(rank, i, static_cast<unsigned>(block) + 1);
}
inline std::uint32_t sum_of(std::size_t ranks, std::size_t block, std::size_t i) {
  std::uint32_t sum = 0;
  for (std::size_t r = 0; r < ranks; ++r) sum += value_of(r, block, i);
  return sum;
}
inline void fill(const DeviceMemory& memory, std::size_t rank, unsigned round) {
  for (std::size_t i = 0; i < count; ++i) memory.as<std::uint32_t>()[i] = value(rank, i, round);
}
inline bool holds_sum(const DeviceMemory& memory, std::size_t ranks, unsigned round) {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t sum = 0;
    for (std::size_t r = 0; r < ranks; ++r) sum += value(r, i, round);
    if (memory.as<std::uint32_t>()[i] != sum) return false;
  }
  return true;
}
inline pithResult_t allreduce(const Rank& rank, const DeviceMemory& send, const DeviceMemory& recv,
                              CUstream stream) {
  return pithAllReduce(send.as<void>(), recv.as<void>(), count, pithUint32, pithSum, rank.comm,
                       stream);
}

struct Graph {
  explicit Graph(CUgraph graph) { OK(cu().graph_instantiate(&exec, graph, 0)); }
  ~Graph() { cu().graph_exec_destroy(exec); }
  Graph(const Graph&) = delete;
  CUgraphExec exec = nullptr;
};

}  // namespace pith::cuda::test
