// Ranks that are threads or processes of one host, each with a driver, the stub's, for tests of
// collectives whose kernels read and write device memory of other ranks.
#pragma once

#include <algorithm>
#include <csignal>
#include <memory>

#include "catch.hpp"
#include "tests/cuda/rank_driver.hpp"
#include "tests/cuda_stub/stub.hpp"

namespace pith::cuda::views {

using rank_driver::cu;
using rank_driver::good;
using ranks::ensure;
using ranks::ok;
using ranks::Rank;
using ranks::Setup;
using ranks::Way;

inline StubCounters counters() {
  StubCounters now;
  pithStubCounters(&now);
  return now;
}

// A device made current, and a stream on it.
struct Gpu {
  explicit Gpu(int ordinal) : context(rank_driver::make_current(ordinal)) {
    good(cu().stream_create(&stream, kStreamNonBlocking, -1));
  }
  ~Gpu() { cu().stream_destroy(stream); }
  Gpu(const Gpu&) = delete;
  void wait() const { good(cu().stream_synchronize(stream)); }
  CUcontext context;
  CUstream stream = nullptr;
};

struct Vector {
  explicit Vector(std::size_t size) : count(size) { good(cu().mem_alloc(&address, 4 * size)); }
  ~Vector() { cu().mem_free(address); }
  Vector(const Vector&) = delete;
  std::uint32_t* data() const {
    return reinterpret_cast<std::uint32_t*>(static_cast<std::uintptr_t>(address));
  }
  std::size_t count;
  CUdeviceptr address = 0;
};

inline std::uint32_t value(int rank, std::size_t i, unsigned round) {
  return static_cast<std::uint32_t>((i + 1) * 2654435761u + static_cast<unsigned>(rank) * 40503u +
                                    round * 69069u);
}
inline void fill(std::uint32_t* data, std::size_t count, int rank, unsigned round) {
  for (std::size_t i = 0; i < count; ++i) data[i] = value(rank, i, round);
}
struct Peers {
  Way way;
  const char* transport;
};
inline constexpr Peers every_peer[] = {
    {Way::processes, "shm"}, {Way::all, "local"}, {Way::threads, "shm"}};

inline Setup setup_of(const Peers& peers, const char* algorithm) {
  Setup setup;
  setup.way = peers.way;
  setup.transport = peers.transport;
  // What workers copy is no copy of the driver's.
  setup.environment = {
      {"PITH_CUDA_STEPS", "launch"}, {"PITH_ALGO", algorithm}, {"PITH_CHUNK", "2048"}};
  return setup;
}

// How many copies go by way of the host in any of the ranks during `work`, which is a whole call on
// each of them.
template <class Work>
std::uint64_t host_copies(Rank& rank, const Work& work) {
  rank.meet();
  const std::uint64_t before = counters().host_copies;
  rank.meet();
  work();
  rank.slot(rank.rank, 0) = 0;
  rank.meet();
  rank.slot(rank.rank, 0) = counters().host_copies - before;
  rank.meet();
  std::uint64_t all = 0;
  for (int r = 0; r < rank.size; ++r) all += rank.slot(r, 0);
  return all;
}

// Calls, each by the number of its round, until no rank needs the host any more; the rounds that
// took.
template <class Call>
unsigned warm_up_by(const Call& call) {
  constexpr unsigned most = 500;
  for (unsigned i = 0; i < most; ++i) {
    if (call(i) == 0) return i;
    ranks::sleep_s(0.001);
  }
  ensure(false, "the ranks still copy by way of the host");
  return most;
}

// The last rank kills itself, `inside` of calls that have begun or before it begins any. Those of
// the others end soon, and the communicator tells of it.
template <class Begin>
void end_with_a_killed_rank(Rank& rank, const Gpu& gpu, pithComm_t comm, bool inside,
                            const Begin& begin) {
  const bool dies = rank.rank == rank.size - 1;
  rank.meet();
  if (dies && !inside) std::raise(SIGKILL);
  for (int i = 0; i < 4; ++i) {
    const pithResult_t begun = begin();
    ensure(begun == pithSuccess || begun == pithRemoteError, "another error");
  }
  if (dies) std::raise(SIGKILL);
  const double since = ranks::now_s();
  gpu.wait();
  ensure(ranks::now_s() - since < 5, "the stream waited long");
  pithResult_t error = pithSuccess;
  ranks::wait_until([&] {
    return pithCommGetAsyncError(comm, &error) == pithSuccess && error == pithRemoteError;
  });
}

}  // namespace pith::cuda::views
