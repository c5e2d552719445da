// Device memory that goes by UCX without the host: between processes, over the stub, whose device
// memory is the host's, so that UCX's sockets do for the network.
#include <functional>

#include "tests/cuda/views_ranks.hpp"

namespace pith::cuda::views {
namespace {

Setup over_ucx(const char* gpudirect) {
  Setup setup;
  setup.way = Way::processes;
  setup.transport = "ucx";
  setup.environment = {
      {"PITH_GPUDIRECT", gpudirect}, {"UCX_TLS", "tcp"}, {"UCX_NET_DEVICES", "lo"}};
  return setup;
}

constexpr std::size_t count = 500000;

struct Calls {
  std::string name;
  std::size_t sent;
  std::size_t received;
  std::function<pithResult_t(const Vector&, const Vector&, pithComm_t, CUstream)> begin;
  std::function<std::uint32_t(int rank, int size, std::size_t i, unsigned round)> expected;
};

std::uint32_t sum(int size, std::size_t i, unsigned round) {
  std::uint32_t all = 0;
  for (int r = 0; r < size; ++r) all += value(r, i, round);
  return all;
}

const Calls every_call[] = {
    {"allreduce", count, count,
     [](const Vector& send, const Vector& recv, pithComm_t comm, CUstream stream) {
       return pithAllReduce(send.data(), recv.data(), count, pithUint32, pithSum, comm, stream);
     },
     [](int, int size, std::size_t i, unsigned round) { return sum(size, i, round); }},
    {"reduce scatter", 3 * count, count,
     [](const Vector& send, const Vector& recv, pithComm_t comm, CUstream stream) {
       return pithReduceScatter(send.data(), recv.data(), count, pithUint32, pithSum, comm, stream);
     },
     [](int rank, int size, std::size_t i, unsigned round) {
       return sum(size, static_cast<std::size_t>(rank) * count + i, round);
     }},
    {"allgather", count, 3 * count,
     [](const Vector& send, const Vector& recv, pithComm_t comm, CUstream stream) {
       return pithAllGather(send.data(), recv.data(), count, pithUint32, comm, stream);
     },
     [](int, int, std::size_t i, unsigned round) {
       return value(static_cast<int>(i / count), i % count, round);
     }},
    {"broadcast", count, count,
     [](const Vector& send, const Vector& recv, pithComm_t comm, CUstream stream) {
       return pithBroadcast(send.data(), recv.data(), count, pithUint32, 1, comm, stream);
     },
     [](int, int, std::size_t i, unsigned round) { return value(1, i, round); }},
    {"all to all", 3 * count, 3 * count,
     [](const Vector& send, const Vector& recv, pithComm_t comm, CUstream stream) {
       return pithAlltoAll(send.data(), recv.data(), count, pithUint32, comm, stream);
     },
     [](int rank, int, std::size_t i, unsigned round) {
       return value(static_cast<int>(i / count), static_cast<std::size_t>(rank) * count + i % count,
                    round);
     }},
};

// Of this rank, in one call after the others.
void run(const Calls& calls, Rank& rank, const Gpu& gpu, pithComm_t comm, bool direct) {
  const Vector send(calls.sent), recv(calls.received);
  for (unsigned round = 0; round < 4; ++round) {
    fill(send.data(), send.count, rank.rank, round);
    std::fill_n(recv.data(), recv.count, 0u);
    const StubCounters before = counters();
    ok(calls.begin(send, recv, comm, gpu.stream));
    gpu.wait();
    bool right = true;
    for (std::size_t i = 0; i < recv.count; ++i) {
      right &= recv.data()[i] == calls.expected(rank.rank, rank.size, i, round);
    }
    ensure(right, calls.name + " is wrong");
    const StubCounters after = counters();
    // Before kernels read what came; who broadcasts is sent nothing.
    const bool receives = calls.name != "broadcast" || rank.rank != 1;
    const bool flushed = after.network_flushes > before.network_flushes;
    ensure(flushed == (direct && receives), calls.name + ": flushes");
    ensure((after.host_copies > before.host_copies) != direct, calls.name + ": the host's copies");
  }
}

}  // namespace

TEST_CASE("the network reads and writes device memory, or the host copies it") {
  const bool direct = GENERATE(true, false);
  INFO((direct ? "direct" : "by the host"));
  CHECK(ranks::run(3, over_ucx(direct ? "1" : "0"), [&](Rank& rank) {
          const Gpu gpu(0);
          const ranks::Comm comm(rank.join());
          for (const Calls& calls : every_call) run(calls, rank, gpu, comm, direct);
        }) == "");
}

TEST_CASE("ranks whose network reaches their devices, and one whose does not") {
  CHECK(ranks::run(3, over_ucx("1"), [&](Rank& rank) {
          if (rank.rank == 1) setenv("PITH_GPUDIRECT", "0", 1);
          const Gpu gpu(0);
          const ranks::Comm comm(rank.join());
          const Vector send(count), recv(count);
          for (unsigned round = 0; round < 6; ++round) {
            fill(send.data(), send.count, rank.rank, round);
            ok(every_call[0].begin(send, recv, comm, gpu.stream));
            gpu.wait();
            bool right = true;
            for (std::size_t i = 0; i < count; ++i) right &= recv.data()[i] == sum(3, i, round);
            ensure(right, "wrong sum");
          }
        }) == "");
}

TEST_CASE("a process that is killed ends calls whose memory the network uses") {
  const bool inside = GENERATE(false, true);
  Setup setup = over_ucx("1");
  setup.may_be_killed = true;
  CHECK(ranks::run(3, setup, [&](Rank& rank) {
          const Gpu gpu(0);
          const ranks::Comm comm(rank.join());
          const Vector send(8 * count), recv(8 * count);
          end_with_a_killed_rank(rank, gpu, comm, inside, [&] {
            return pithAllReduce(send.data(), recv.data(), 8 * count, pithUint32, pithSum, comm,
                                 gpu.stream);
          });
        }) == "");
}

}  // namespace pith::cuda::views
