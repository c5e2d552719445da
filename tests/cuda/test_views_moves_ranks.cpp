// Broadcast and all-to-all whose kernels read device memory of other ranks: threads and processes
// on the stub driver, which counts the copies by way of the host.

#include "tests/cuda/views_ranks.hpp"

using namespace pith::cuda;
using namespace pith::cuda::views;

namespace {

constexpr const char* both[] = {"broadcast:views", "alltoall:views"};

// Of a broadcast one block, of an all-to-all one for each rank.
struct Places {
  std::uint32_t* send;
  std::uint32_t* recv;
  std::size_t count;  // of both
};

struct Turn {
  bool broadcasts;
  unsigned round;

  int root(const Rank& rank) const {
    return static_cast<int>(round % static_cast<unsigned>(rank.size));
  }
};

std::size_t length(const Rank& rank, bool broadcasts, std::size_t block) {
  return broadcasts ? block : block * static_cast<std::size_t>(rank.size);
}

bool sends(const Rank& rank, const Turn& turn) {
  return !turn.broadcasts || rank.rank == turn.root(rank);
}

void fill_inputs(const Places& at, const Rank& rank, const Turn& turn) {
  std::fill_n(at.recv, at.count, 0u);
  if (sends(rank, turn)) fill(at.send, at.count, rank.rank, turn.round);
}

bool is_right(const Places& at, const Rank& rank, const Turn& turn) {
  const std::size_t block = at.count / static_cast<std::size_t>(rank.size);
  const std::size_t own = block * static_cast<std::size_t>(rank.rank);
  bool right = true;
  for (std::size_t i = 0; i < at.count; ++i) {
    right &= at.recv[i] == (turn.broadcasts
                                ? value(turn.root(rank), i, turn.round)
                                : value(static_cast<int>(i / block), own + i % block, turn.round));
    if (sends(rank, turn)) right &= at.send[i] == value(rank.rank, i, turn.round);
  }
  return right;
}

pithResult_t start(const Places& at, const Rank& rank, const Turn& turn, pithComm_t comm,
                   CUstream stream) {
  if (!turn.broadcasts) {
    return pithAlltoAll(at.send, at.recv, at.count / static_cast<std::size_t>(rank.size),
                        pithUint32, comm, stream);
  }
  // Only the root has anything to send.
  const std::uint32_t* send = sends(rank, turn) ? at.send : nullptr;
  return pithBroadcast(send, at.recv, at.count, pithUint32, turn.root(rank), comm, stream);
}

// One call on all ranks, to its end; how many copies went by way of the host meanwhile, in any of
// the processes.
std::uint64_t call(Rank& rank, const Gpu& gpu, pithComm_t comm, const Places& at,
                   const Turn& turn) {
  fill_inputs(at, rank, turn);
  return host_copies(rank, [&] {
    ok(start(at, rank, turn, comm, gpu.stream));
    gpu.wait();
    ensure(is_right(at, rank, turn), "wrong blocks");
  });
}

// Until a round of calls in which each rank was the root went without a copy.
void warm_up(Rank& rank, const Gpu& gpu, pithComm_t comm, const Places& at, bool broadcasts) {
  const auto roots = broadcasts ? static_cast<unsigned>(rank.size) : 1u;
  const unsigned rounds = warm_up_by([&](unsigned i) {
    std::uint64_t copies = 0;
    for (unsigned root = 0; root < roots; ++root) {
      copies += call(rank, gpu, comm, at, {broadcasts, i * roots + root});
    }
    return copies;
  });
  ensure(rounds > 0, "nobody had mapped anything at first");
}

void run_moves(Rank& rank, int devices, std::size_t block, bool broadcasts) {
  const Gpu gpu(rank.rank % devices);
  const ranks::Comm comm(rank.join());
  const std::size_t count = length(rank, broadcasts, block);
  const Vector send(count), recv(count);
  const Places apart{send.data(), recv.data(), count};
  warm_up(rank, gpu, comm, apart, broadcasts);
  for (unsigned round = 3000; round < 3005; ++round) {
    ensure(call(rank, gpu, comm, apart, {broadcasts, round}) == 0, "copied by way of the host");
  }
  if (!broadcasts) return rank.meet();
  const Places inside{send.data(), send.data(), count};
  for (unsigned round = 4000; round < 4005; ++round) {
    ensure(call(rank, gpu, comm, inside, {true, round}) == 0, "in place copied");
  }
  rank.meet();
}

const Peers& apart_or_together() { return every_peer[GENERATE(0, 1)]; }

void run_by_worker(Setup& setup) {
  setup.environment.emplace_back("PITH_CUDA_STEPS", "worker");
  setup.environment.emplace_back("PITH_CUDA_BLOCKS", "3");
}

}  // namespace

TEST_CASE("kernels read what other ranks send") {
  const Peers peers = GENERATE(from_range(std::begin(every_peer), std::end(every_peer)));
  const char* algorithm = GENERATE(from_range(std::begin(both), std::end(both)));
  const int n = GENERATE(2, 4);
  const int devices = GENERATE(1, 2);
  INFO(algorithm << " on " << n << " ranks, " << devices << " devices, " << peers.transport);
  CHECK(ranks::run(n, setup_of(peers, algorithm), [&](Rank& rank) {
          run_moves(rank, devices, n == 2 ? 15000 : 6007, algorithm == both[0]);
        }) == "");
}

// Who makes all ranks at once does so before they use devices.
TEST_CASE("a few elements are moved over views unasked") {
  const bool broadcasts = GENERATE(true, false);
  const std::size_t count = GENERATE(1, 513);
  CHECK(ranks::run(3, setup_of(every_peer[GENERATE(0, 2)], ""),
                   [&](Rank& rank) { run_moves(rank, 1, count, broadcasts); }) == "");
}

TEST_CASE("where one rank refuses views, moves go by way of the host") {
  const bool broadcasts = GENERATE(true, false);
  CHECK(ranks::run(3, setup_of(every_peer[0], broadcasts ? both[0] : both[1]), [&](Rank& rank) {
          if (rank.rank == 1) setenv("PITH_CUDA_IPC", "0", 1);
          const Gpu gpu(0);
          const ranks::Comm comm(rank.join());
          const std::size_t count = length(rank, broadcasts, 5000);
          const Vector send(count), recv(count);
          for (unsigned round = 0; round < 30; ++round) {
            ensure(
                call(rank, gpu, comm, {send.data(), recv.data(), count}, {broadcasts, round}) > 0,
                "none by the host");
            ranks::sleep_s(0.001);
          }
        }) == "");
}

// Each rank as it likes, also from call to call.
TEST_CASE("moves between device memory on some ranks and host memory on others") {
  const Peers& peers = apart_or_together();
  const char* algorithm = GENERATE(from_range(std::begin(both), std::end(both)));
  const bool registered = GENERATE(false, true);
  const bool worker = GENERATE(false, true);
  INFO(algorithm << ", " << peers.transport << (registered ? ", registered" : ", private")
                 << (worker ? ", by a worker" : ""));
  Setup setup = setup_of(peers, algorithm);
  setup.environment.emplace_back("PITH_COPY_BYTES", "4096");
  if (worker) run_by_worker(setup);
  CHECK(ranks::run(3, setup, [&](Rank& rank) {
          const Gpu gpu(0);
          const ranks::Comm comm(rank.join());
          const bool broadcasts = algorithm == both[0];
          const std::size_t count = length(rank, broadcasts, 3000);
          const Vector send(count), recv(count);
          const ranks::Buffer plain(4 * count, registered);
          const ranks::Buffer result(4 * count, registered);
          const Places on_device{send.data(), recv.data(), count};
          const Places on_host{plain.as<std::uint32_t>(), result.as<std::uint32_t>(), count};
          const std::uint64_t pageable = counters().pageable_copies;
          for (unsigned round = 0; round < 48; ++round) {
            const bool device = (round >> rank.rank & 1) != 0;
            const Places& at = device ? on_device : on_host;
            fill_inputs(at, rank, {broadcasts, round});
            ok(start(at, rank, {broadcasts, round}, comm, device ? gpu.stream : nullptr));
            gpu.wait();
            ensure(is_right(at, rank, {broadcasts, round}), "wrong blocks");
          }
          rank.meet();
          ensure(counters().pageable_copies == pageable, "a device was given pageable memory");
        }) == "");
}

TEST_CASE("a process that is killed ends moves over views") {
  const char* algorithm = GENERATE(from_range(std::begin(both), std::end(both)));
  const bool inside = GENERATE(false, true);
  Setup setup = setup_of(every_peer[0], algorithm);
  setup.may_be_killed = true;
  CHECK(ranks::run(3, setup, [&](Rank& rank) {
          const Gpu gpu(0);
          const ranks::Comm comm(rank.join());
          const bool broadcasts = algorithm == both[0];
          const Vector send(99999), recv(99999);
          const Places at{send.data(), recv.data(), send.count};
          warm_up(rank, gpu, comm, at, broadcasts);
          end_with_a_killed_rank(rank, gpu, comm, inside, [&] {
            return start(at, rank, {broadcasts, 2}, comm, gpu.stream);
          });
        }) == "");
}

TEST_CASE("an abort ends moves over views") {
  const char* algorithm = GENERATE(from_range(std::begin(both), std::end(both)));
  CHECK(ranks::run(2, setup_of(apart_or_together(), algorithm), [&](Rank& rank) {
          const Gpu gpu(0);
          ranks::Comm comm(rank.join());
          const bool broadcasts = algorithm == both[0];
          const Vector send(3000), recv(3000);
          const Places at{send.data(), recv.data(), send.count};
          warm_up(rank, gpu, comm, at, broadcasts);
          rank.meet();
          if (rank.rank == 0) {
            ok(start(at, rank, {broadcasts, 0}, comm, gpu.stream));
            ranks::sleep_s(0.02);
          }
          rank.meet();
          const double begin = ranks::now_s();
          if (rank.rank == 1) ok(pithCommAbort(comm.release()));
          gpu.wait();
          ensure(ranks::now_s() - begin < 5, "the stream waited long");
          rank.meet();
        }) == "");
}

// What is sent is overwritten behind the calls in the same graph: peers must have read it.
TEST_CASE("captured moves over views") {
  const Peers& peers = apart_or_together();
  const char* algorithm = GENERATE(from_range(std::begin(both), std::end(both)));
  const bool worker = GENERATE(false, true);
  INFO(algorithm << ", " << peers.transport << (worker ? ", by a worker" : ""));
  Setup setup = setup_of(peers, algorithm);
  if (worker) run_by_worker(setup);
  CHECK(ranks::run(3, setup, [&](Rank& rank) {
          const Gpu gpu(0);
          const ranks::Comm comm(rank.join());
          const bool broadcasts = algorithm == both[0];
          const Vector send(60000), recv(60000);
          const Places at{send.data(), recv.data(), send.count};
          good(cu().capture_begin(gpu.stream, kCaptureThreadLocal));
          ok(start(at, rank, {broadcasts, 0}, comm, gpu.stream));
          good(cu().memset_async(send.address, 0xEE, 4 * send.count, gpu.stream));
          CUgraph graph = nullptr;
          CUgraphExec exec = nullptr;
          good(cu().capture_end(gpu.stream, &graph));
          good(cu().graph_instantiate(&exec, graph, 0));
          // A multiple of the ranks: the captured root's. Enough for peers to have mapped all.
          for (unsigned round = 0; round < 120; round += 3) {
            fill_inputs(at, rank, {broadcasts, round});
            good(cu().graph_launch(exec, gpu.stream));
            gpu.wait();
            if (rank.rank == 0 || !broadcasts) {
              fill(send.data(), send.count, rank.rank, round);  // it is looked at, too
            }
            ensure(is_right(at, rank, {broadcasts, round}), "overwritten before it was read");
            ranks::sleep_s(0.001);
          }
          cu().graph_exec_destroy(exec);
          cu().graph_destroy(graph);
          rank.meet();
        }) == "");
}
