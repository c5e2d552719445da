// All-gather and reduce-scatter whose kernels read device memory of other ranks: threads and
// processes on the stub driver, which counts the copies by way of the host.

#include "tests/cuda/views_ranks.hpp"

using namespace pith::cuda;
using namespace pith::cuda::views;

namespace {

constexpr const char* both[] = {"allgather:views", "reduce_scatter:views"};

// One rank's buffers: `one` has a block, `all` one of each rank. In place the block lies in there.
struct Places {
  std::uint32_t* one;
  std::uint32_t* all;
  std::size_t count;  // of a block
};

Places in_place(const Vector& all, const Rank& rank) {
  const std::size_t count = all.count / static_cast<std::size_t>(rank.size);
  return {all.data() + count * static_cast<std::size_t>(rank.rank), all.data(), count};
}

struct Turn {
  bool gathers;
  unsigned round;
  pithRedOp_t op = pithSum;
  bool premultiplied = false;  // by rank + 2
};

std::uint32_t reduced(const Turn& turn, int ranks, std::size_t i) {
  std::uint32_t result = 0;
  for (int r = 0; r < ranks; ++r) {
    const std::uint32_t one = value(r, i, turn.round);
    const auto factor = turn.premultiplied ? static_cast<std::uint32_t>(r) + 2 : 1u;
    result = turn.op == pithMax ? std::max(result, one) : result + one * factor;
  }
  return turn.op == pithAvg ? result / static_cast<std::uint32_t>(ranks) : result;
}

// A block apart holds what its elements in `all` would.
void fill_inputs(const Places& at, const Rank& rank, const Turn& turn) {
  const std::size_t own = at.count * static_cast<std::size_t>(rank.rank);
  if (!turn.gathers) {
    return fill(at.all, at.count * static_cast<std::size_t>(rank.size), rank.rank, turn.round);
  }
  for (std::size_t i = 0; i < at.count; ++i) at.one[i] = value(rank.rank, own + i, turn.round);
}

bool is_right(const Places& at, const Rank& rank, const Turn& turn) {
  const std::size_t own = at.count * static_cast<std::size_t>(rank.rank);
  bool right = true;
  for (std::size_t i = 0; i < at.count * static_cast<std::size_t>(rank.size); ++i) {
    const bool ours = i - own < at.count;
    if (turn.gathers) {
      right &= at.all[i] == value(static_cast<int>(i / at.count), i, turn.round);
    } else if (ours) {
      right &= at.one[i - own] == reduced(turn, rank.size, i);
    } else {
      right &= at.all[i] == value(rank.rank, i, turn.round);  // nobody writes into an input
    }
  }
  return right;
}

pithResult_t start(const Places& at, const Turn& turn, pithComm_t comm, CUstream stream) {
  if (turn.gathers) return pithAllGather(at.one, at.all, at.count, pithUint32, comm, stream);
  return pithReduceScatter(at.all, at.one, at.count, pithUint32, turn.op, comm, stream);
}

// One call on all ranks, to its end; how many copies went by way of the host meanwhile, in any of
// the processes.
std::uint64_t call(Rank& rank, const Gpu& gpu, pithComm_t comm, const Places& at,
                   const Turn& turn) {
  fill_inputs(at, rank, turn);
  return host_copies(rank, [&] {
    ok(start(at, turn, comm, gpu.stream));
    gpu.wait();
    ensure(is_right(at, rank, turn), "wrong blocks");
  });
}

unsigned warm_up(Rank& rank, const Gpu& gpu, pithComm_t comm, const Places& at, Turn turn) {
  const unsigned first = turn.round;
  return warm_up_by([&](unsigned i) {
    turn.round = first + i;
    return call(rank, gpu, comm, at, turn);
  });
}

void run_blocks(Rank& rank, int devices, std::size_t count, bool gathers) {
  const Gpu gpu(rank.rank % devices);
  const ranks::Comm comm(rank.join());
  const Vector one(count);
  const Vector all(count * static_cast<std::size_t>(rank.size));
  const Places apart{one.data(), all.data(), count};
  const Places inside = in_place(all, rank);
  ensure(warm_up(rank, gpu, comm, apart, {gathers, 0}) > 0, "nobody had mapped anything at first");
  for (unsigned round = 1000; round < 1003; ++round) {
    ensure(call(rank, gpu, comm, apart, {gathers, round}) == 0, "copied by way of the host");
  }
  warm_up(rank, gpu, comm, inside, {gathers, 2000});
  ensure(call(rank, gpu, comm, inside, {gathers, 3000}) == 0, "in place copied");
  if (gathers) return rank.meet();
  for (const pithRedOp_t op : {pithMax, pithAvg}) {
    for (const Places& at : {apart, inside}) {
      ensure(call(rank, gpu, comm, at, {false, 4000, op}) == 0, "another operation copied");
    }
  }
  pithRedOp_t scaled = pithSum;
  const auto factor = static_cast<std::uint32_t>(rank.rank) + 2;
  ok(pithRedOpCreatePreMulSum(&scaled, const_cast<std::uint32_t*>(&factor), pithUint32,
                              pithScalarHostImmediate, comm));
  warm_up(rank, gpu, comm, inside, {false, 5000, scaled, true});
  ensure(call(rank, gpu, comm, apart, {false, 6000, scaled, true}) == 0, "a scaled sum copied");
  ok(pithRedOpDestroy(scaled, comm));
  rank.meet();
}

const Peers& apart_or_together() { return every_peer[GENERATE(0, 1)]; }

}  // namespace

TEST_CASE("kernels read blocks in device memory of other ranks") {
  const Peers peers = GENERATE(from_range(std::begin(every_peer), std::end(every_peer)));
  const char* algorithm = GENERATE(from_range(std::begin(both), std::end(both)));
  const int n = GENERATE(2, 3, 4);
  const int devices = GENERATE(1, 2);
  INFO(algorithm << " on " << n << " ranks, " << devices << " devices, " << peers.transport);
  CHECK(ranks::run(n, setup_of(peers, algorithm), [&](Rank& rank) {
          run_blocks(rank, devices, n == 2 ? 15000 : 6007, algorithm == both[0]);
        }) == "");
}

TEST_CASE("blocks of a few elements over views") {
  const Peers& peers = apart_or_together();
  const char* algorithm = GENERATE(from_range(std::begin(both), std::end(both)));
  const std::size_t count = GENERATE(1, 3, 513);
  CHECK(ranks::run(3, setup_of(peers, algorithm),
                   [&](Rank& rank) { run_blocks(rank, 1, count, algorithm == both[0]); }) == "");
}

TEST_CASE("long blocks go over views unasked") {
  Setup setup = setup_of(apart_or_together(), "");
  const bool gathers = GENERATE(true, false);
  INFO((gathers ? "all-gather" : "reduce-scatter"));
  CHECK(ranks::run(4, setup, [&](Rank& rank) { run_blocks(rank, 1, 2049, gathers); }) == "");
}

TEST_CASE("where views are refused, blocks go by way of the host") {
  Setup setup = setup_of(apart_or_together(), "allgather:views,reduce_scatter:views");
  int devices = 1;
  SECTION("by the setting") { setup.environment.emplace_back("PITH_CUDA_IPC", "0"); }
  SECTION("by the device") {
    setup.environment.emplace_back("PITH_CUDA_STUB_PEERS", "0");
    devices = 2;
  }
  CHECK(ranks::run(2, setup, [&](Rank& rank) {
          const Gpu gpu(rank.rank % devices);
          const ranks::Comm comm(rank.join());
          const Vector one(5000), all(10000);
          for (unsigned round = 0; round < 12; ++round) {
            const Places at =
                round % 4 < 2 ? Places{one.data(), all.data(), one.count} : in_place(all, rank);
            ensure(call(rank, gpu, comm, at, {round % 2 == 0, round}) > 0, "none by the host");
          }
        }) == "");
}

// One rank only: the pairs without it still read each other's memory.
TEST_CASE("a rank that refuses views gets its blocks by way of the host") {
  const bool gathers = GENERATE(true, false);
  CHECK(ranks::run(3, setup_of(every_peer[0], gathers ? both[0] : both[1]), [&](Rank& rank) {
          if (rank.rank == 1) setenv("PITH_CUDA_IPC", "0", 1);
          const Gpu gpu(0);
          const ranks::Comm comm(rank.join());
          const Vector one(5000), all(15000);
          const Places at{one.data(), all.data(), one.count};
          for (unsigned round = 0; round < 30; ++round) {
            ensure(call(rank, gpu, comm, at, {gathers, round}) > 0, "none by the host");
            ranks::sleep_s(0.001);
          }
        }) == "");
}

// Each rank as it likes, also from call to call.
TEST_CASE("blocks in device memory on some ranks, in host memory on others") {
  const Peers& peers = apart_or_together();
  const char* algorithm = GENERATE(from_range(std::begin(both), std::end(both)));
  const bool registered = GENERATE(false, true);
  INFO(algorithm << ", " << peers.transport << (registered ? ", registered" : ", private"));
  Setup setup = setup_of(peers, algorithm);
  setup.environment.emplace_back("PITH_COPY_BYTES", "4096");
  CHECK(ranks::run(3, setup, [&](Rank& rank) {
          const Gpu gpu(0);
          const ranks::Comm comm(rank.join());
          constexpr std::size_t count = 3000;
          const Vector one(count), all(3 * count);
          const ranks::Buffer plain(4 * count, registered);
          const ranks::Buffer plain_all(12 * count, registered);
          const Places on_device{one.data(), all.data(), count};
          const Places on_host{plain.as<std::uint32_t>(), plain_all.as<std::uint32_t>(), count};
          const bool gathers = algorithm == both[0];
          warm_up(rank, gpu, comm, on_device, {gathers, 0});
          const std::uint64_t pageable = counters().pageable_copies;
          for (unsigned round = 0; round < 24; ++round) {
            const bool device = (round >> rank.rank & 1) != 0;
            const Places& at = device ? on_device : on_host;
            fill_inputs(at, rank, {gathers, round});
            ok(start(at, {gathers, round}, comm, device ? gpu.stream : nullptr));
            gpu.wait();
            ensure(is_right(at, rank, {gathers, round}), "wrong blocks");
          }
          rank.meet();
          ensure(counters().pageable_copies == pageable, "a device was given pageable memory");
        }) == "");
}

TEST_CASE("a process that is killed ends calls that read its blocks") {
  const char* algorithm = GENERATE(from_range(std::begin(both), std::end(both)));
  const bool inside = GENERATE(false, true);
  Setup setup = setup_of(every_peer[0], algorithm);
  setup.may_be_killed = true;
  CHECK(ranks::run(3, setup, [&](Rank& rank) {
          const Gpu gpu(0);
          const ranks::Comm comm(rank.join());
          const Vector one(100000), all(300000);
          const Places at{one.data(), all.data(), one.count};
          const Turn turn{algorithm == both[0], 0};
          warm_up(rank, gpu, comm, at, turn);
          end_with_a_killed_rank(rank, gpu, comm, inside,
                                 [&] { return start(at, turn, comm, gpu.stream); });
        }) == "");
}

TEST_CASE("what a stream does behind a call is not seen by peers") {
  const Peers& peers = apart_or_together();
  const char* algorithm = GENERATE(from_range(std::begin(both), std::end(both)));
  INFO(algorithm << ", " << peers.transport);
  CHECK(ranks::run(3, setup_of(peers, algorithm), [&](Rank& rank) {
          const Gpu gpu(0);
          const ranks::Comm comm(rank.join());
          const bool gathers = algorithm == both[0];
          const Vector one(60000), all(180000);
          const Places at{one.data(), all.data(), one.count};
          const Vector& input = gathers ? one : all;
          warm_up(rank, gpu, comm, at, {gathers, 0});
          for (unsigned round = 1000; round < 1020; ++round) {
            fill_inputs(at, rank, {gathers, round});
            ok(start(at, {gathers, round}, comm, gpu.stream));
            good(cu().memset_async(input.address, 0xEE, 4 * input.count, gpu.stream));
            gpu.wait();
            if (!gathers) fill_inputs(at, rank, {gathers, round});  // they are looked at, too
            ensure(is_right(at, rank, {gathers, round}), "overwritten before it was read");
          }
        }) == "");
}

// Calls that follow each other in a stream write what peers have read before.
TEST_CASE("captured steps of sharded training over views") {
  const Peers& peers = apart_or_together();
  CHECK(ranks::run(3, setup_of(peers, "allgather:views,reduce_scatter:views"), [&](Rank& rank) {
          const Gpu gpu(0);
          const ranks::Comm comm(rank.join());
          const Vector all(9000);
          const Places at = in_place(all, rank);
          good(cu().capture_begin(gpu.stream, kCaptureThreadLocal));
          for (int i = 0; i < 2; ++i) {
            ok(start(at, {true, 0}, comm, gpu.stream));
            ok(start(at, {false, 0}, comm, gpu.stream));
          }
          ok(start(at, {true, 0}, comm, gpu.stream));
          CUgraph graph = nullptr;
          CUgraphExec exec = nullptr;
          good(cu().capture_end(gpu.stream, &graph));
          good(cu().graph_instantiate(&exec, graph, 0));
          warm_up_by([&](unsigned round) {
            fill_inputs(at, rank, {true, round});
            return host_copies(rank, [&] {
              good(cu().graph_launch(exec, gpu.stream));
              gpu.wait();
              bool right = true;
              for (std::size_t i = 0; i < all.count; ++i) {
                const int owner = static_cast<int>(i / at.count);
                right &= all.data()[i] == 9 * value(owner, i, round);
              }
              ensure(right, "a replay's blocks are wrong");
            });
          });
          cu().graph_exec_destroy(exec);
          cu().graph_destroy(graph);
        }) == "");
}

// What is sent is overwritten behind the call in the same graph: peers must have read it.
TEST_CASE("inputs of captured calls are not seen by peers afterwards") {
  const Peers& peers = apart_or_together();
  const char* algorithm = GENERATE(from_range(std::begin(both), std::end(both)));
  INFO(algorithm << ", " << peers.transport);
  CHECK(ranks::run(3, setup_of(peers, algorithm), [&](Rank& rank) {
          const Gpu gpu(0);
          const ranks::Comm comm(rank.join());
          const bool gathers = algorithm == both[0];
          const Vector one(60000), all(180000);
          const Places at{one.data(), all.data(), one.count};
          const Vector& input = gathers ? one : all;
          good(cu().capture_begin(gpu.stream, kCaptureThreadLocal));
          ok(start(at, {gathers, 0}, comm, gpu.stream));
          good(cu().memset_async(input.address, 0xEE, 4 * input.count, gpu.stream));
          CUgraph graph = nullptr;
          CUgraphExec exec = nullptr;
          good(cu().capture_end(gpu.stream, &graph));
          good(cu().graph_instantiate(&exec, graph, 0));
          // Enough for peers to have mapped all before most of them.
          for (unsigned round = 0; round < 40; ++round) {
            fill_inputs(at, rank, {gathers, round});
            good(cu().graph_launch(exec, gpu.stream));
            gpu.wait();
            if (!gathers) fill_inputs(at, rank, {gathers, round});  // they are looked at, too
            ensure(is_right(at, rank, {gathers, round}), "overwritten before it was read");
            ranks::sleep_s(0.001);
          }
          cu().graph_exec_destroy(exec);
          cu().graph_destroy(graph);
          rank.meet();
        }) == "");
}
