// Device memory that goes by UCX without the host: between processes, over the stub, whose device
// memory is the host's, so that UCX's sockets do for the network.
#include <functional>

#include "tests/cuda/views_ranks.hpp"
#include "tests/sanitized.hpp"

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

constexpr std::size_t count = 150000;
constexpr int most = 5;  // ranks
constexpr int root = 1;

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
    {"reduce scatter", most* count, count,
     [](const Vector& send, const Vector& recv, pithComm_t comm, CUstream stream) {
       return pithReduceScatter(send.data(), recv.data(), count, pithUint32, pithSum, comm, stream);
     },
     [](int rank, int size, std::size_t i, unsigned round) {
       return sum(size, static_cast<std::size_t>(rank) * count + i, round);
     }},
    {"allgather", count, most* count,
     [](const Vector& send, const Vector& recv, pithComm_t comm, CUstream stream) {
       return pithAllGather(send.data(), recv.data(), count, pithUint32, comm, stream);
     },
     [](int, int, std::size_t i, unsigned round) {
       return value(static_cast<int>(i / count), i % count, round);
     }},
    {"broadcast", count, count,
     [](const Vector& send, const Vector& recv, pithComm_t comm, CUstream stream) {
       return pithBroadcast(send.data(), recv.data(), count, pithUint32, root, comm, stream);
     },
     [](int, int, std::size_t i, unsigned round) { return value(root, i, round); }},
    {"all to all", most* count, most* count,
     [](const Vector& send, const Vector& recv, pithComm_t comm, CUstream stream) {
       return pithAlltoAll(send.data(), recv.data(), count, pithUint32, comm, stream);
     },
     [](int rank, int, std::size_t i, unsigned round) {
       return value(static_cast<int>(i / count), static_cast<std::size_t>(rank) * count + i % count,
                    round);
     }},
    {"reduce", count, count,
     [](const Vector& send, const Vector& recv, pithComm_t comm, CUstream stream) {
       return pithReduce(send.data(), recv.data(), count, pithUint32, pithSum, root, comm, stream);
     },
     [](int, int size, std::size_t i, unsigned round) { return sum(size, i, round); }},
    {"gather", count, most* count,
     [](const Vector& send, const Vector& recv, pithComm_t comm, CUstream stream) {
       return pithGather(send.data(), recv.data(), count, pithUint32, root, comm, stream);
     },
     [](int, int, std::size_t i, unsigned round) {
       return value(static_cast<int>(i / count), i % count, round);
     }},
    {"scatter", most* count, count,
     [](const Vector& send, const Vector& recv, pithComm_t comm, CUstream stream) {
       return pithScatter(send.data(), recv.data(), count, pithUint32, root, comm, stream);
     },
     [](int rank, int, std::size_t i, unsigned round) {
       return value(root, static_cast<std::size_t>(rank) * count + i, round);
     }},
};

// What a call leaves to the root alone.
bool is_for_root(const std::string& name) { return name == "reduce" || name == "gather"; }

// One call after the other, of all kinds.
void run_all(Rank& rank, const std::function<void(const Calls&, const StubCounters&)>& look) {
  const Gpu gpu(0);
  const ranks::Comm comm(rank.join());
  for (const Calls& calls : every_call) {
    const Vector send(calls.sent), recv(calls.received);
    for (unsigned round = 0; round < 3; ++round) {
      fill(send.data(), send.count, rank.rank, round);
      std::fill_n(recv.data(), recv.count, 0u);
      const StubCounters before = counters();
      ok(calls.begin(send, recv, comm, gpu.stream));
      gpu.wait();
      const bool receives = rank.rank == root || !is_for_root(calls.name);
      const std::size_t most_received = static_cast<std::size_t>(rank.size) * count;
      bool right = true;
      for (std::size_t i = 0; receives && i < std::min(recv.count, most_received); ++i) {
        right &= recv.data()[i] == calls.expected(rank.rank, rank.size, i, round);
      }
      ensure(right, calls.name + " is wrong");
      look(calls, before);
    }
  }
}

}  // namespace

TEST_CASE("the network reads and writes device memory, or the host copies it") {
  const bool direct = GENERATE(true, false);
  INFO((direct ? "direct" : "by the host"));
  CHECK(ranks::run(3, over_ucx(direct ? "1" : "0"), [&](Rank& rank) {
          run_all(rank, [&](const Calls& calls, const StubCounters& before) {
            const StubCounters after = counters();
            const bool copied = after.host_copies > before.host_copies;
            ensure(!(copied && direct), calls.name + ": the host's copies");
            if (calls.name != "allreduce") return;
            ensure(copied != direct, "nobody copied");
            // Before kernels read what has come.
            const bool flushed = after.network_flushes > before.network_flushes;
            ensure(flushed == direct, "flushes");
          });
        }) == "");
}

// A send ends when the other rank has taken it, however short the pieces are.
TEST_CASE("every algorithm by way of the network alone") {
  constexpr const char* all[] = {
      "allreduce:recursive_doubling,broadcast:binomial,allgather:ring,reduce_scatter:ring",
      "allreduce:direct,broadcast:chain,allgather:bruck,reduce_scatter:recursive_halving",
      "allreduce:ring", "allreduce:rabenseifner", "allreduce:double_tree"};
  const int which = GENERATE(range(0, 5));
  const int size = GENERATE(4, 5);
  // Each with one number of ranks; the simulator goes through all of both.
  if (!pith::test::is_due({which, size})) return;
  const char* const algorithms = all[which];
  INFO(algorithms << ", " << size << " ranks");
  Setup setup = over_ucx("1");
  setup.environment.emplace_back("PITH_ALGO", algorithms);
  setup.environment.emplace_back("PITH_CHUNK", "40000");
  CHECK(ranks::run(size, setup, [](Rank& rank) {
          run_all(rank, [](const Calls&, const StubCounters&) {});
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
