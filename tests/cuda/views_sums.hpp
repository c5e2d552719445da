// Allreduces of ranks that read and write device memory of each other, for tests of the kinds of
// memory. A vector is what has data() and a count.
#pragma once

#include "tests/cuda/views_ranks.hpp"

namespace pith::cuda::views {

inline bool holds_sum(const std::uint32_t* data, std::size_t count, int ranks, unsigned round,
                      bool average) {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t sum = 0;
    for (int r = 0; r < ranks; ++r) sum += value(r, i, round);
    if (data[i] != (average ? sum / static_cast<unsigned>(ranks) : sum)) return false;
  }
  return true;
}

// One call on all ranks, to its end; how many copies went by way of the host meanwhile, in any of
// the processes.
template <class Send, class Recv>
std::uint64_t call(Rank& rank, const Gpu& gpu, pithComm_t comm, const Send& send, const Recv& recv,
                   unsigned round, bool average = false) {
  fill(send.data(), send.count, rank.rank, round);
  return host_copies(rank, [&] {
    ok(pithAllReduce(send.data(), recv.data(), send.count, pithUint32, average ? pithAvg : pithSum,
                     comm, gpu.stream));
    gpu.wait();
    ensure(holds_sum(recv.data(), recv.count, rank.size, round, average), "wrong sum");
  });
}

template <class Send, class Recv>
unsigned warm_up(Rank& rank, const Gpu& gpu, pithComm_t comm, const Send& send, const Recv& recv,
                 unsigned round = 0) {
  return warm_up_by([&](unsigned i) { return call(rank, gpu, comm, send, recv, round + i); });
}

}  // namespace pith::cuda::views
