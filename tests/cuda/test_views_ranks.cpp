// Allreduce whose kernels read and write device memory of other ranks: threads and processes on the
// stub driver, which counts the copies by way of the host.

#include "tests/cuda/views_sums.hpp"

using namespace pith::cuda;
using namespace pith::cuda::views;

namespace {

void run_sums(Rank& rank, int devices, std::size_t count) {
  const Gpu gpu(rank.rank % devices);
  const ranks::Comm comm(rank.join());
  const Vector send(count);
  const Vector recv(count);
  ensure(warm_up(rank, gpu, comm, send, recv) > 0, "nobody had mapped anything at the first call");
  for (unsigned round = 1000; round < 1005; ++round) {
    ensure(call(rank, gpu, comm, send, recv, round) == 0, "copied by way of the host");
  }
  ensure(call(rank, gpu, comm, send, recv, 7, true) == 0, "an average copied");
  warm_up(rank, gpu, comm, send, send, 2000);
  ensure(call(rank, gpu, comm, send, send, 3000) == 0, "in place copied");
  rank.meet();
}

}  // namespace

TEST_CASE("kernels read and write device memory of other ranks") {
  const Peers peers = GENERATE(from_range(std::begin(every_peer), std::end(every_peer)));
  const char* algorithm = GENERATE("allreduce:one_shot", "allreduce:two_shot");
  const int n = GENERATE(2, 3, 4);
  const int devices = GENERATE(1, 2);
  INFO(algorithm << " on " << n << " ranks, " << devices << " devices, " << peers.transport);
  CHECK(ranks::run(n, setup_of(peers, algorithm),
                   [&](Rank& rank) { run_sums(rank, devices, n == 2 ? 30000 : 20011); }) == "");
}

TEST_CASE("vectors shorter than the ranks are many, over views") {
  const Peers peers = GENERATE(from_range(std::begin(every_peer), std::begin(every_peer) + 2));
  const std::size_t count = GENERATE(1, 2, 3, 513);
  CHECK(ranks::run(4, setup_of(peers, "allreduce:two_shot"),
                   [&](Rank& rank) { run_sums(rank, 1, count); }) == "");
}

// The driver gives an address out again: what peers have mapped is another allocation.
TEST_CASE("device memory that is freed is mapped no more") {
  const Peers peers = GENERATE(from_range(std::begin(every_peer), std::begin(every_peer) + 2));
  CHECK(ranks::run(2, setup_of(peers, "allreduce:two_shot"), [&](Rank& rank) {
          const Gpu gpu(0);
          const ranks::Comm comm(rank.join());
          const Vector recv(4000);
          CUdeviceptr last = 0;
          unsigned round = 0;
          for (int i = 0; i < 10; ++i) {
            const Vector send(4000);
            // Ranks of one process allocate in any order.
            ensure(peers.way != Way::processes || last == 0 || send.address == last,
                   "a new address");
            last = send.address;
            round += 1 + warm_up(rank, gpu, comm, send, recv, round);
          }
          for (int i = 0; i < 4; ++i) call(rank, gpu, comm, recv, recv, round++);
          if (peers.way != Way::processes) return;
          ranks::wait_until([] { return counters().ipc_closes >= 5; });
          ensure(counters().ipc_opens <= 13, "memory was mapped several times");
        }) == "");
}

TEST_CASE("captured calls over views are replayed among eager ones") {
  const Peers peers = GENERATE(from_range(std::begin(every_peer), std::begin(every_peer) + 2));
  CHECK(ranks::run(3, setup_of(peers, "allreduce:two_shot"), [&](Rank& rank) {
          const Gpu gpu(0);
          const ranks::Comm comm(rank.join());
          const Vector send(5000), recv(5000), other(3000), result(3000);
          good(cu().capture_begin(gpu.stream, kCaptureThreadLocal));
          ok(pithAllReduce(send.data(), recv.data(), 5000, pithUint32, pithSum, comm, gpu.stream));
          ok(pithAllReduce(recv.data(), recv.data(), 5000, pithUint32, pithSum, comm, gpu.stream));
          CUgraph graph = nullptr;
          CUgraphExec exec = nullptr;
          good(cu().capture_end(gpu.stream, &graph));
          good(cu().graph_instantiate(&exec, graph, 0));
          std::uint64_t copies = 1;
          for (unsigned round = 0; round < 300 && (copies > 0 || round < 50); ++round) {
            copies = call(rank, gpu, comm, other, result, round);
            fill(send.data(), send.count, rank.rank, round);
            rank.meet();
            const std::uint64_t before = counters().host_copies;
            rank.meet();
            good(cu().graph_launch(exec, gpu.stream));
            gpu.wait();
            bool right = true;
            for (std::size_t i = 0; i < recv.count; ++i) {
              std::uint32_t sum = 0;
              for (int r = 0; r < rank.size; ++r) sum += value(r, i, round);
              right &= recv.data()[i] == 3 * sum;
            }
            ensure(right, "a replay's sum is wrong");
            rank.meet();
            rank.slot(rank.rank, 1) = counters().host_copies - before;
            rank.meet();
            for (int r = 0; r < rank.size; ++r) copies += rank.slot(r, 1);
          }
          ensure(copies == 0, "replays copy by way of the host");
          cu().graph_exec_destroy(exec);
          cu().graph_destroy(graph);
        }) == "");
}

TEST_CASE("where views are refused, device memory goes by way of the host") {
  Setup setup;
  int devices = 1;
  SECTION("by the setting") {
    setup = setup_of(every_peer[GENERATE(0, 1)], "allreduce:two_shot");
    setup.environment.emplace_back("PITH_CUDA_IPC", "0");
  }
  SECTION("by the device") {
    setup = setup_of(every_peer[GENERATE(0, 1)], "allreduce:two_shot");
    setup.environment.emplace_back("PITH_CUDA_STUB_PEERS", "0");
    devices = 2;
  }
  CHECK(ranks::run(2, setup, [&](Rank& rank) {
          const Gpu gpu(rank.rank % devices);
          const ranks::Comm comm(rank.join());
          const Vector send(3000), recv(3000);
          for (unsigned round = 0; round < 8; ++round) {
            ensure(call(rank, gpu, comm, send, recv, round) > 0, "nothing went by the host");
          }
        }) == "");
}

// Each rank as it likes, also from call to call.
TEST_CASE("device memory on some ranks, host memory on others") {
  const Peers peers = GENERATE(from_range(std::begin(every_peer), std::begin(every_peer) + 2));
  const char* algorithm = GENERATE("allreduce:one_shot", "allreduce:two_shot");
  const bool registered = GENERATE(false, true);
  INFO(algorithm << ", " << peers.transport << (registered ? ", registered" : ", private"));
  Setup setup = setup_of(peers, algorithm);
  setup.environment.emplace_back("PITH_COPY_BYTES", "4096");
  CHECK(ranks::run(3, setup, [&](Rank& rank) {
          const Gpu gpu(0);
          const ranks::Comm comm(rank.join());
          constexpr std::size_t count = 6000;
          const Vector send(count), recv(count);
          const ranks::Buffer plain(4 * count, registered);
          const ranks::Buffer result(4 * count, registered);
          warm_up(rank, gpu, comm, send, recv);
          const std::uint64_t pageable = counters().pageable_copies;
          for (unsigned round = 0; round < 24; ++round) {
            const bool device = (round >> rank.rank & 1) != 0;
            std::uint32_t* from = device ? send.data() : plain.as<std::uint32_t>();
            std::uint32_t* to = device ? recv.data() : result.as<std::uint32_t>();
            fill(from, count, rank.rank, round);
            ok(pithAllReduce(from, to, count, pithUint32, pithSum, comm,
                             device ? gpu.stream : nullptr));
            gpu.wait();
            ensure(holds_sum(to, count, rank.size, round, false), "wrong sum");
          }
          rank.meet();
          ensure(counters().pageable_copies == pageable, "a device was given pageable memory");
        }) == "");
}

// A stream may go on only when no peer touches its memory any more; it must not wait for ever, nor
// may calls that are behind it.
TEST_CASE("a process that is killed ends calls over views") {
  const char* algorithm = GENERATE("allreduce:one_shot", "allreduce:two_shot");
  const bool inside = GENERATE(false, true);
  Setup setup = setup_of(every_peer[0], algorithm);
  setup.may_be_killed = true;
  CHECK(ranks::run(3, setup, [&](Rank& rank) {
          const Gpu gpu(0);
          const ranks::Comm comm(rank.join());
          const Vector send(200000), recv(200000);
          warm_up(rank, gpu, comm, send, recv);
          end_with_a_killed_rank(rank, gpu, comm, inside, [&] {
            return pithAllReduce(send.data(), recv.data(), send.count, pithUint32, pithSum, comm,
                                 gpu.stream);
          });
        }) == "");
}

TEST_CASE("an abort ends calls over views") {
  const Peers peers = GENERATE(from_range(std::begin(every_peer), std::begin(every_peer) + 2));
  CHECK(ranks::run(2, setup_of(peers, "allreduce:two_shot"), [&](Rank& rank) {
          const Gpu gpu(0);
          ranks::Comm comm(rank.join());
          const Vector send(3000), recv(3000);
          warm_up(rank, gpu, comm, send, recv);
          rank.meet();
          if (rank.rank == 0) {
            ok(pithAllReduce(send.data(), recv.data(), send.count, pithUint32, pithSum, comm,
                             gpu.stream));
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
