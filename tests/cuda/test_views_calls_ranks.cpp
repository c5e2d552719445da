// Collectives whose kernels read and write device memory of other ranks: threads and processes on
// the stub driver, which counts the copies by way of the host. One body for all of them.

#include "tests/cuda/views_ranks.hpp"
#include "tests/sanitized.hpp"

using namespace pith::cuda;
using namespace pith::cuda::views;
using pith::test::is_due;

namespace {

enum class Kind { allreduce, allgather, reduce_scatter, broadcast, alltoall };

struct Algorithm {
  const char* name;
  Kind kind;
};

constexpr Algorithm every_algorithm[] = {
    {"allreduce:one_shot", Kind::allreduce}, {"allreduce:two_shot", Kind::allreduce},
    {"allgather:views", Kind::allgather},    {"reduce_scatter:views", Kind::reduce_scatter},
    {"broadcast:views", Kind::broadcast},    {"alltoall:views", Kind::alltoall}};

Algorithm any_algorithm() {
  return GENERATE(from_range(std::begin(every_algorithm), std::end(every_algorithm)));
}
const Peers& apart_or_together() { return every_peer[GENERATE(0, 1)]; }

bool reduces(Kind kind) { return kind == Kind::allreduce || kind == Kind::reduce_scatter; }

// One rank's buffers; `block` elements are one rank's part.
struct Places {
  std::uint32_t* send;
  std::uint32_t* recv;
  std::size_t block;
  bool in_place = false;
};

struct Turn {
  Kind kind;
  unsigned round;
  pithRedOp_t op = pithSum;
  bool premultiplied = false;  // by rank + 2

  int root(const Rank& rank) const {
    return static_cast<int>(round % static_cast<unsigned>(rank.size));
  }
};

std::size_t sent(Kind kind, std::size_t block, int ranks) {
  const bool all = kind == Kind::reduce_scatter || kind == Kind::alltoall;
  return all ? block * static_cast<std::size_t>(ranks) : block;
}
std::size_t received(Kind kind, std::size_t block, int ranks) {
  const bool all = kind == Kind::allgather || kind == Kind::alltoall;
  return all ? block * static_cast<std::size_t>(ranks) : block;
}

// Device memory of one rank for a kind of call.
struct Vectors {
  Vectors(const Rank& rank, Kind of, std::size_t one)
      : send(sent(of, one, rank.size)), recv(received(of, one, rank.size)), kind(of), block(one) {}
  Places apart() const { return {send.data(), recv.data(), block}; }
  // Where NCCL's callers have it: one's own block lies inside of what is sent or received.
  Places in_place(const Rank& rank) const {
    const std::size_t own = block * static_cast<std::size_t>(rank.rank);
    if (kind == Kind::allgather) return {recv.data() + own, recv.data(), block, true};
    if (kind == Kind::reduce_scatter) return {send.data(), send.data() + own, block, true};
    return {send.data(), send.data(), block, true};
  }
  Vector send, recv;
  Kind kind;
  std::size_t block;
};

bool sends(const Rank& rank, const Turn& turn) {
  return turn.kind != Kind::broadcast || rank.rank == turn.root(rank);
}

// A block that is gathered holds what its elements in the whole do.
std::uint32_t input(const Rank& rank, const Turn& turn, std::size_t block, std::size_t i) {
  const std::size_t own = block * static_cast<std::size_t>(rank.rank);
  return value(rank.rank, turn.kind == Kind::allgather ? own + i : i, turn.round);
}

std::uint32_t reduced(const Turn& turn, int ranks, std::size_t i) {
  std::uint32_t result = 0;
  for (int r = 0; r < ranks; ++r) {
    const std::uint32_t one = value(r, i, turn.round);
    const auto factor = turn.premultiplied ? static_cast<std::uint32_t>(r) + 2 : 1u;
    result = turn.op == pithMax ? std::max(result, one) : result + one * factor;
  }
  return turn.op == pithAvg ? result / static_cast<std::uint32_t>(ranks) : result;
}

std::uint32_t output(const Rank& rank, const Turn& turn, std::size_t block, std::size_t i) {
  const std::size_t own = block * static_cast<std::size_t>(rank.rank);
  switch (turn.kind) {
    case Kind::allreduce:
      return reduced(turn, rank.size, i);
    case Kind::reduce_scatter:
      return reduced(turn, rank.size, own + i);
    case Kind::allgather:
      return value(static_cast<int>(i / block), i, turn.round);
    case Kind::broadcast:
      return value(turn.root(rank), i, turn.round);
    case Kind::alltoall:
      break;
  }
  return value(static_cast<int>(i / block), own + i % block, turn.round);
}

void fill_inputs(const Places& at, const Rank& rank, const Turn& turn) {
  if (!sends(rank, turn)) return;
  for (std::size_t i = 0; i < sent(turn.kind, at.block, rank.size); ++i) {
    at.send[i] = input(rank, turn, at.block, i);
  }
}

bool inputs_are_left_alone(const Places& at, const Rank& rank, const Turn& turn) {
  if (!sends(rank, turn)) return true;
  const std::uint32_t* end = at.recv + received(turn.kind, at.block, rank.size);
  for (std::size_t i = 0; i < sent(turn.kind, at.block, rank.size); ++i) {
    const bool is_result = at.in_place && at.send + i >= at.recv && at.send + i < end;
    if (!is_result && at.send[i] != input(rank, turn, at.block, i)) return false;
  }
  return true;
}

bool outputs_are_right(const Places& at, const Rank& rank, const Turn& turn) {
  for (std::size_t i = 0; i < received(turn.kind, at.block, rank.size); ++i) {
    if (at.recv[i] != output(rank, turn, at.block, i)) return false;
  }
  return true;
}

pithResult_t start(const Places& at, const Rank& rank, const Turn& turn, pithComm_t comm,
                   CUstream stream) {
  switch (turn.kind) {
    case Kind::allreduce:
      return pithAllReduce(at.send, at.recv, at.block, pithUint32, turn.op, comm, stream);
    case Kind::reduce_scatter:
      return pithReduceScatter(at.send, at.recv, at.block, pithUint32, turn.op, comm, stream);
    case Kind::allgather:
      return pithAllGather(at.send, at.recv, at.block, pithUint32, comm, stream);
    case Kind::alltoall:
      return pithAlltoAll(at.send, at.recv, at.block, pithUint32, comm, stream);
    case Kind::broadcast:
      break;
  }
  // Only the root has anything to send.
  return pithBroadcast(sends(rank, turn) ? at.send : nullptr, at.recv, at.block, pithUint32,
                       turn.root(rank), comm, stream);
}

// One call on all ranks, to its end; how many copies went by way of the host meanwhile, in any of
// the processes.
std::uint64_t call(Rank& rank, const Gpu& gpu, pithComm_t comm, const Places& at,
                   const Turn& turn) {
  fill_inputs(at, rank, turn);
  return host_copies(rank, [&] {
    ok(start(at, rank, turn, comm, gpu.stream));
    gpu.wait();
    ensure(outputs_are_right(at, rank, turn), "a wrong result");
    ensure(inputs_are_left_alone(at, rank, turn), "an input was written");
  });
}

// Until a round of calls in which each rank was the root went without a copy; how many that took.
unsigned warm_up(Rank& rank, const Gpu& gpu, pithComm_t comm, const Places& at, Turn turn) {
  const auto roots = turn.kind == Kind::broadcast ? static_cast<unsigned>(rank.size) : 1u;
  return warm_up_by([&](unsigned i) {
    std::uint64_t copies = 0;
    for (unsigned root = 0; root < roots; ++root) {
      turn.round = i * roots + root;
      copies += call(rank, gpu, comm, at, turn);
    }
    return copies;
  });
}

void run_operations(Rank& rank, const Gpu& gpu, pithComm_t comm, const Vectors& vectors) {
  const Places places[] = {vectors.apart(), vectors.in_place(rank)};
  for (const pithRedOp_t op : {pithMax, pithAvg}) {
    for (const Places& at : places) {
      ensure(call(rank, gpu, comm, at, {vectors.kind, 4000, op}) == 0, "another operation copied");
    }
  }
  if (vectors.kind != Kind::reduce_scatter) return;
  pithRedOp_t scaled = pithSum;
  auto factor = static_cast<std::uint32_t>(rank.rank) + 2;
  ok(pithRedOpCreatePreMulSum(&scaled, &factor, pithUint32, pithScalarHostImmediate, comm));
  warm_up(rank, gpu, comm, places[1], {vectors.kind, 0, scaled, true});
  ensure(call(rank, gpu, comm, places[0], {vectors.kind, 6000, scaled, true}) == 0,
         "a scaled sum copied");
  ok(pithRedOpDestroy(scaled, comm));
}

void run_calls(Rank& rank, int devices, std::size_t block, Kind kind) {
  const Gpu gpu(rank.rank % devices);
  const ranks::Comm comm(rank.join());
  const Vectors vectors(rank, kind, block);
  const Places apart = vectors.apart();
  ensure(warm_up(rank, gpu, comm, apart, {kind, 0}) > 0, "nobody had mapped anything at first");
  for (unsigned round = 1000; round < 1005; ++round) {
    ensure(call(rank, gpu, comm, apart, {kind, round}) == 0, "copied by way of the host");
  }
  if (kind == Kind::alltoall) return rank.meet();
  const Places inside = vectors.in_place(rank);
  warm_up(rank, gpu, comm, inside, {kind, 0});
  for (unsigned round = 3000; round < 3005; ++round) {
    ensure(call(rank, gpu, comm, inside, {kind, round}) == 0, "in place copied");
  }
  if (reduces(kind)) run_operations(rank, gpu, comm, vectors);
  rank.meet();
}

void run_by_worker(Setup& setup) {
  setup.environment.emplace_back("PITH_CUDA_STEPS", "worker");
  setup.environment.emplace_back("PITH_CUDA_BLOCKS", "3");
}

struct Captured {
  template <class Calls>
  Captured(const Gpu& gpu, const Calls& calls) {
    good(cu().capture_begin(gpu.stream, kCaptureThreadLocal));
    calls();
    good(cu().capture_end(gpu.stream, &graph));
    good(cu().graph_instantiate(&exec, graph, 0));
  }
  ~Captured() {
    cu().graph_exec_destroy(exec);
    cu().graph_destroy(graph);
  }
  Captured(const Captured&) = delete;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
};

}  // namespace

TEST_CASE("kernels read and write device memory of other ranks") {
  const Peers peers = GENERATE(from_range(std::begin(every_peer), std::end(every_peer)));
  const Algorithm algorithm = any_algorithm();
  const int n = GENERATE(2, 3, 4);
  const int devices = GENERATE(1, 2);
  if (!is_due({static_cast<int>(algorithm.kind), n, devices, static_cast<int>(peers.way)})) return;
  INFO(algorithm.name << " on " << n << " ranks, " << devices << " devices, " << peers.transport);
  CHECK(ranks::run(n, setup_of(peers, algorithm.name), [&](Rank& rank) {
          run_calls(rank, devices, n == 2 ? 15000 : 6007, algorithm.kind);
        }) == "");
}

TEST_CASE("a few elements over views") {
  const Peers& peers = apart_or_together();
  const Algorithm algorithm = any_algorithm();
  const int block = GENERATE(1, 3, 512);
  if (!is_due({static_cast<int>(algorithm.kind), block, peers.way == Way::all})) return;
  INFO(algorithm.name << ", " << peers.transport << ", " << block);
  CHECK(ranks::run(4, setup_of(peers, algorithm.name), [&](Rank& rank) {
          run_calls(rank, 1, static_cast<std::size_t>(block), algorithm.kind);
        }) == "");
}

TEST_CASE("long blocks, and moves of any length, go over views unasked") {
  const auto [kind, block, peers] = GENERATE(
      table<Kind, std::size_t, int>({{Kind::allgather, 2049, 0},
                                     {Kind::allgather, 2049, 1},
                                     {Kind::reduce_scatter, 2049, 0},
                                     {Kind::reduce_scatter, 2049, 1},
                                     // Who makes all ranks at once does so before they use devices.
                                     {Kind::broadcast, 1, 0},
                                     {Kind::broadcast, 513, 2},
                                     {Kind::alltoall, 513, 0},
                                     {Kind::alltoall, 1, 2}}));
  INFO(static_cast<int>(kind) << ", " << every_peer[peers].transport);
  CHECK(ranks::run(4, setup_of(every_peer[peers], ""),
                   [of = kind, one = block](Rank& rank) { run_calls(rank, 1, one, of); }) == "");
}

TEST_CASE("where views are refused, device memory goes by way of the host") {
  const Algorithm algorithm = any_algorithm();
  Setup setup = setup_of(every_peer[0], algorithm.name);
  int devices = 1;
  bool one_rank = false;
  SECTION("by the setting") {
    setup = setup_of(apart_or_together(), algorithm.name);
    setup.environment.emplace_back("PITH_CUDA_IPC", "0");
  }
  SECTION("by the device") {
    setup = setup_of(apart_or_together(), algorithm.name);
    setup.environment.emplace_back("PITH_CUDA_STUB_PEERS", "0");
    devices = 2;
  }
  // The pairs without it still read each other's memory.
  SECTION("by one rank") { one_rank = true; }
  INFO(algorithm.name);
  CHECK(ranks::run(one_rank ? 3 : 2, setup, [&](Rank& rank) {
          if (one_rank && rank.rank == 1) setenv("PITH_CUDA_IPC", "0", 1);
          const Gpu gpu(rank.rank % devices);
          const ranks::Comm comm(rank.join());
          const Vectors vectors(rank, algorithm.kind, 5000);
          for (unsigned round = 0; round < (one_rank ? 30u : 8u); ++round) {
            ensure(call(rank, gpu, comm, vectors.apart(), {algorithm.kind, round}) > 0,
                   "nothing went by the host");
            ranks::sleep_s(0.001);
          }
        }) == "");
}

// Each rank as it likes, also from call to call.
TEST_CASE("device memory on some ranks, host memory on others") {
  const Peers& peers = apart_or_together();
  const Algorithm algorithm = any_algorithm();
  const bool registered = GENERATE(false, true);
  const bool worker = GENERATE(false, true);
  if (!is_due({static_cast<int>(algorithm.kind), registered, worker, peers.way == Way::all}))
    return;
  INFO(algorithm.name << ", " << peers.transport << (registered ? ", registered" : ", private")
                      << (worker ? ", by a worker" : ""));
  Setup setup = setup_of(peers, algorithm.name);
  setup.environment.emplace_back("PITH_COPY_BYTES", "4096");
  if (worker) run_by_worker(setup);
  CHECK(ranks::run(3, setup, [&](Rank& rank) {
          const Gpu gpu(0);
          const ranks::Comm comm(rank.join());
          constexpr std::size_t block = 3000;
          const Kind kind = algorithm.kind;
          const Vectors vectors(rank, kind, block);
          const ranks::Buffer send(4 * vectors.send.count, registered);
          const ranks::Buffer recv(4 * vectors.recv.count, registered);
          const Places on_device = vectors.apart();
          const Places on_host{send.as<std::uint32_t>(), recv.as<std::uint32_t>(), block};
          if (!worker) warm_up(rank, gpu, comm, on_device, {kind, 0});
          const std::uint64_t pageable = counters().pageable_copies;
          for (unsigned round = 0; round < 24; ++round) {
            const bool device = (round >> rank.rank & 1) != 0;
            const Places& at = device ? on_device : on_host;
            fill_inputs(at, rank, {kind, round});
            ok(start(at, rank, {kind, round}, comm, device ? gpu.stream : nullptr));
            gpu.wait();
            ensure(outputs_are_right(at, rank, {kind, round}), "a wrong result");
          }
          rank.meet();
          ensure(counters().pageable_copies == pageable, "a device was given pageable memory");
        }) == "");
}

// A stream may go on only when no peer touches its memory any more; it must not wait for ever, nor
// may calls that are behind it.
TEST_CASE("a process that is killed ends calls over views") {
  const Algorithm algorithm = any_algorithm();
  const bool inside = GENERATE(false, true);
  INFO(algorithm.name << (inside ? ", inside" : ""));
  Setup setup = setup_of(every_peer[0], algorithm.name);
  setup.may_be_killed = true;
  CHECK(ranks::run(3, setup, [&](Rank& rank) {
          const Gpu gpu(0);
          const ranks::Comm comm(rank.join());
          const Vectors vectors(rank, algorithm.kind, 100000);
          const Places at = vectors.apart();
          warm_up(rank, gpu, comm, at, {algorithm.kind, 0});
          end_with_a_killed_rank(rank, gpu, comm, inside, [&] {
            return start(at, rank, {algorithm.kind, 2}, comm, gpu.stream);
          });
        }) == "");
}

TEST_CASE("an abort ends calls over views") {
  const Peers& peers = apart_or_together();
  const Algorithm algorithm = any_algorithm();
  INFO(algorithm.name << ", " << peers.transport);
  CHECK(ranks::run(2, setup_of(peers, algorithm.name), [&](Rank& rank) {
          const Gpu gpu(0);
          ranks::Comm comm(rank.join());
          const Vectors vectors(rank, algorithm.kind, 3000);
          const Places at = vectors.apart();
          warm_up(rank, gpu, comm, at, {algorithm.kind, 0});
          rank.meet();
          if (rank.rank == 0) {
            ok(start(at, rank, {algorithm.kind, 0}, comm, gpu.stream));
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

// Each time what is sent is overwritten behind the call: peers must have read it. Eager calls on
// other memory go on in between.
TEST_CASE("what a stream does behind a call is not seen by peers") {
  const Peers& peers = apart_or_together();
  const Algorithm algorithm = any_algorithm();
  const bool captured = GENERATE(false, true);
  const bool worker = GENERATE(false, true);
  if (!is_due({static_cast<int>(algorithm.kind), captured, worker, peers.way == Way::all})) return;
  INFO(algorithm.name << ", " << peers.transport << (captured ? ", captured" : "")
                      << (worker ? ", by a worker" : ""));
  Setup setup = setup_of(peers, algorithm.name);
  if (worker) run_by_worker(setup);
  CHECK(ranks::run(3, setup, [&](Rank& rank) {
          const Gpu gpu(0);
          const ranks::Comm comm(rank.join());
          const Kind kind = algorithm.kind;
          const Vectors vectors(rank, kind, 60000);
          const Vectors others(rank, kind, 3000);
          const Places at = vectors.apart();
          const auto call_and_overwrite = [&] {
            ok(start(at, rank, {kind, 0}, comm, gpu.stream));
            good(cu().memset_async(vectors.send.address, 0xEE, 4 * vectors.send.count, gpu.stream));
          };
          std::unique_ptr<Captured> graph;
          if (captured) graph = std::make_unique<Captured>(gpu, call_and_overwrite);
          if (!captured && !worker) warm_up(rank, gpu, comm, at, {kind, 0});
          // Multiples of the ranks: the captured root's. Enough for peers to have mapped all.
          for (unsigned round = 0; round < 120; round += 3) {
            fill_inputs(at, rank, {kind, round});
            captured ? good(cu().graph_launch(graph->exec, gpu.stream)) : call_and_overwrite();
            gpu.wait();
            ensure(outputs_are_right(at, rank, {kind, round}), "overwritten before it was read");
            if (round % 2 == 0) call(rank, gpu, comm, others.apart(), {kind, round});
            ranks::sleep_s(0.001);
          }
          rank.meet();
        }) == "");
}

// Calls that follow each other in a stream write what peers have read before.
TEST_CASE("captured steps of sharded training over views") {
  const Peers& peers = apart_or_together();
  CHECK(ranks::run(3, setup_of(peers, "allgather:views,reduce_scatter:views"), [&](Rank& rank) {
          const Gpu gpu(0);
          const ranks::Comm comm(rank.join());
          const Vectors vectors(rank, Kind::allgather, 3000);
          const Places gathered = vectors.in_place(rank);
          const Places scattered{gathered.recv, gathered.send, gathered.block, true};
          const Captured graph(gpu, [&] {
            for (int i = 0; i < 2; ++i) {
              ok(start(gathered, rank, {Kind::allgather, 0}, comm, gpu.stream));
              ok(start(scattered, rank, {Kind::reduce_scatter, 0}, comm, gpu.stream));
            }
            ok(start(gathered, rank, {Kind::allgather, 0}, comm, gpu.stream));
          });
          warm_up_by([&](unsigned round) {
            const Turn turn{Kind::allgather, round};
            fill_inputs(gathered, rank, turn);
            return host_copies(rank, [&] {
              good(cu().graph_launch(graph.exec, gpu.stream));
              gpu.wait();
              bool right = true;
              for (std::size_t i = 0; i < vectors.recv.count; ++i) {
                right &= gathered.recv[i] == 9 * output(rank, turn, gathered.block, i);
              }
              ensure(right, "a replay's blocks are wrong");
            });
          });
        }) == "");
}
