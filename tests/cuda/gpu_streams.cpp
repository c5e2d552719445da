// When calls on streams of a device start and end, over any driver.
#include <csignal>
#include <memory>
#include <thread>

#include "tests/cuda/gpu_world.hpp"

using namespace pith::cuda;
using namespace pith::cuda::gpu;

namespace {

constexpr std::size_t bytes = 20000;

// Two vectors on a device, and a communicator of all ranks.
struct Client {
  explicit Client(Rank& r, std::size_t size = bytes)
      : rank(r), send(gpu, size), recv(gpu, size), other_send(gpu, size), other_recv(gpu, size) {
    comm = rank.join();
  }
  ~Client() {
    if (comm) pithCommDestroy(comm);
  }
  void warm_up() { gpu::warm_up(rank, gpu, comm, send, recv); }
  Rank& rank;
  Gpu gpu;
  Memory send, recv, other_send, other_recv;
  pithComm_t comm = nullptr;
};

// A call waits for its stream, its caller does not, and work behind it waits for the call.
void run_held(Rank& rank) {
  Client client(rank);
  Word hold;
  const CUevent behind = new_event();
  client.warm_up();
  fill(client.send, rank.rank, 1);
  client.recv.fill(0x5A);
  rank.meet();
  good(cu().wait_value64(client.gpu.stream, hold.address(), 1, kWaitValueGeq));
  ok(all_reduce(client.send, client.recv, client.comm, client.gpu.stream));
  good(cu().event_record(behind, client.gpu.stream));
  ranks::sleep_s(0.02);
  ensure(cu().event_query(behind) == kErrorNotReady, "the call did not wait for its stream");
  client.recv.get();
  for (std::size_t i = 0; i < bytes / 4; ++i) {
    ensure(client.recv.words()[i] == 0x5A5A5A5Au, "written before its stream was there");
  }
  rank.meet();
  hold.set(1);
  good(cu().event_synchronize(behind));
  ensure_sum(client.recv, rank.size, 1);
  rank.meet();
}

// The second stream takes the first one's result, by an event.
void run_two_streams(Rank& rank) {
  Client client(rank);
  const CUevent first = new_event();
  client.warm_up();
  for (unsigned round = 0; round < 20; ++round) {
    fill(client.send, rank.rank, round);
    fill(client.other_send, rank.rank, round + 100);
    rank.meet();
    ok(all_reduce(client.send, client.recv, client.comm, client.gpu.stream));
    good(cu().event_record(first, client.gpu.stream));
    ok(all_reduce(client.other_send, client.other_recv, client.comm, client.gpu.other));
    good(cu().stream_wait_event(client.gpu.other, first, 0));
    ok(all_reduce(client.recv, client.recv, client.comm, client.gpu.other));
    good(cu().stream_synchronize(client.gpu.other));
    ensure_sum(client.other_recv, rank.size, round + 100);
    ensure_sum(client.recv, rank.size, round, static_cast<std::uint32_t>(rank.size));
    rank.meet();
  }
}

CUgraphExec capture(const Client& client) {
  good(cu().capture_begin(client.gpu.stream, kCaptureThreadLocal));
  // Two calls in one graph: the second takes the first one's result.
  ok(all_reduce(client.send, client.recv, client.comm, client.gpu.stream));
  ok(all_reduce(client.recv, client.recv, client.comm, client.gpu.stream));
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  good(cu().capture_end(client.gpu.stream, &graph));
  good(cu().graph_instantiate(&exec, graph, 0));
  return exec;
}

void run_replays(Rank& rank, unsigned replays) {
  Client client(rank, 4096);
  client.warm_up();
  const CUgraphExec exec = capture(client);
  const auto times = static_cast<std::uint32_t>(rank.size);
  for (unsigned round = 0; round < replays; ++round) {
    const bool eager = round % 3 != 0;
    fill(client.send, rank.rank, round);
    fill(client.other_send, rank.rank, round + 7);
    if (rank.rank == 0) good(cu().graph_launch(exec, client.gpu.stream));
    if (eager) {
      ok(all_reduce(client.other_send, client.other_recv, client.comm, client.gpu.other));
    }
    if (rank.rank != 0) good(cu().graph_launch(exec, client.gpu.stream));
    client.gpu.wait();
    good(cu().stream_synchronize(client.gpu.other));
    ensure_sum(client.recv, rank.size, round, times);
    if (eager) ensure_sum(client.other_recv, rank.size, round + 7);
  }
  rank.meet();
}

// Two sums on two streams and a ring of messages, in one group.
void run_group(Rank& rank) {
  Client client(rank);
  const Memory token(client.gpu, bytes), passed(client.gpu, bytes);
  client.warm_up();
  const int next = (rank.rank + 1) % rank.size;
  const int previous = (rank.rank + rank.size - 1) % rank.size;
  for (unsigned round = 0; round < 10; ++round) {
    fill(client.send, rank.rank, round);
    fill(client.other_send, rank.rank, round + 50);
    fill(token, rank.rank, round + 90);
    rank.meet();
    ok(pithGroupStart());
    ok(all_reduce(client.send, client.recv, client.comm, client.gpu.stream));
    ok(all_reduce(client.other_send, client.other_recv, client.comm, client.gpu.other));
    ok(pithSend(token.at(), bytes / 4, pithUint32, next, client.comm, client.gpu.stream));
    ok(pithRecv(passed.at(), bytes / 4, pithUint32, previous, client.comm, client.gpu.stream));
    ok(pithGroupEnd());
    client.gpu.wait();
    good(cu().stream_synchronize(client.gpu.other));
    ensure_sum(client.recv, rank.size, round);
    ensure_sum(client.other_recv, rank.size, round + 50);
    passed.get();
    for (std::size_t i = 0; i < bytes / 4; ++i) {
      ensure(passed.words()[i] == value_of(previous, i, round + 90), "a message is wrong");
    }
    rank.meet();
  }
}

// Several communicators of the same ranks, a stream each, called in another order on each rank.
void run_communicators(Rank& rank) {
  constexpr int number = 4;
  const Gpu gpu;
  std::vector<CUstream> streams(number);
  std::vector<std::unique_ptr<Memory>> send, recv;
  std::vector<pithComm_t> comms(number);
  for (int c = 0; c < number; ++c) {
    const auto at = static_cast<std::size_t>(c);
    good(cu().stream_create(&streams[at], kStreamNonBlocking, 0));
    send.push_back(std::make_unique<Memory>(gpu, bytes));
    recv.push_back(std::make_unique<Memory>(gpu, bytes));
    ok(pithCommInitRank(&comms[at], rank.size, rank.id(c), rank.rank));
    warm_up(rank, gpu, comms[at], *send[at], *recv[at]);
  }
  for (unsigned round = 0; round < 10; ++round) {
    for (std::size_t c = 0; c < number; ++c) {
      fill(*send[c], rank.rank, round + static_cast<unsigned>(c));
    }
    rank.meet();
    for (int i = 0; i < number; ++i) {
      const auto c = static_cast<std::size_t>((i + rank.rank) % number);
      ok(all_reduce(*send[c], *recv[c], comms[c], streams[c]));
    }
    for (std::size_t c = 0; c < number; ++c) {
      good(cu().stream_synchronize(streams[c]));
      ensure_sum(*recv[c], rank.size, round + static_cast<unsigned>(c));
    }
    rank.meet();
  }
  for (const pithComm_t comm : comms) ok(pithCommDestroy(comm));
}

// A thread that frees memory waits for all streams, this rank's call among them; the call must end
// all the same.
void run_free_during_a_call(Rank& rank) {
  Client client(rank);
  CUdeviceptr spare = 0;
  good(cu().mem_alloc(&spare, std::size_t{1} << 20));
  client.warm_up();
  fill(client.send, rank.rank, 3);
  rank.meet();
  if (rank.rank != 0) {
    ranks::sleep_s(0.2);
    ok(all_reduce(client.send, client.recv, client.comm, client.gpu.stream));
    client.gpu.wait();
  } else {
    ok(all_reduce(client.send, client.recv, client.comm, client.gpu.stream));
    ranks::sleep_s(0.02);
    std::thread freeing([&] {
      cu().ctx_set_current(client.gpu.context);
      cu().mem_free(spare);
    });
    client.gpu.wait();
    freeing.join();
  }
  ensure_sum(client.recv, rank.size, 3);
  rank.meet();
}

// Whoever comes late makes its streams and memory, and loads kernels, while others' streams wait.
void run_first_calls(Rank& rank) {
  if (rank.rank != 0) ranks::sleep_s(0.1 * rank.rank);
  Client client(rank);
  fill(client.send, rank.rank, 4);
  if (rank.rank != 0) ranks::sleep_s(0.1 * rank.rank);
  ok(all_reduce(client.send, client.recv, client.comm, client.gpu.stream));
  client.gpu.wait();
  ensure_sum(client.recv, rank.size, 4);
  rank.meet();
}

void run_abort(Rank& rank) {
  Client client(rank);
  client.warm_up();
  fill(client.send, rank.rank, 5);
  rank.meet();
  if (rank.rank == 0) {
    ok(all_reduce(client.send, client.recv, client.comm, client.gpu.stream));
    ranks::sleep_s(0.05);
    ensure(cu().stream_query(client.gpu.stream) == kErrorNotReady, "ended without the others");
  }
  rank.meet();
  if (rank.rank == 1) {
    ok(pithCommAbort(client.comm));
    client.comm = nullptr;
  }
  const double begin = ranks::now_s();
  client.gpu.wait();
  ensure(ranks::now_s() - begin < 5, "the stream waited long");
  rank.meet();
}

void run_killed(Rank& rank) {
  Client client(rank, 400000);
  client.warm_up();
  rank.meet();
  const pithResult_t begun = all_reduce(client.send, client.recv, client.comm, client.gpu.stream);
  ensure(begun == pithSuccess || begun == pithRemoteError, "another error");
  if (rank.rank == rank.size - 1) std::raise(SIGKILL);
  const double begin = ranks::now_s();
  client.gpu.wait();
  ensure(ranks::now_s() - begin < 5, "the stream waited long");
  pithResult_t error = pithSuccess;
  ranks::wait_until([&] {
    return pithCommGetAsyncError(client.comm, &error) == pithSuccess && error == pithRemoteError;
  });
}

// The caller's stream is the null one: refused, or as on any other.
void run_null_stream(Rank& rank) {
  Client client(rank);
  client.warm_up();
  fill(client.send, rank.rank, 6);
  rank.meet();
  const pithResult_t result = all_reduce(client.send, client.recv, client.comm, nullptr);
  if (result == pithInvalidArgument) return rank.meet();
  ok(result);
  good(cu().ctx_synchronize());
  ensure_sum(client.recv, rank.size, 6);
  rank.meet();
}

void run_host_memory(Rank& rank) {
  Client client(rank);
  client.warm_up();
  std::vector<std::uint32_t> data(3, static_cast<std::uint32_t>(rank.rank + 1));
  fill(client.send, rank.rank, 8);
  rank.meet();
  ok(pithAllReduce(data.data(), data.data(), 3, pithUint32, pithSum, client.comm,
                   client.gpu.stream));
  ok(pithBarrier(client.comm, client.gpu.other));
  ok(all_reduce(client.send, client.recv, client.comm, client.gpu.stream));
  client.gpu.wait();
  good(cu().stream_synchronize(client.gpu.other));
  const auto size = static_cast<std::uint32_t>(rank.size);
  ensure(data == std::vector<std::uint32_t>(3, size * (size + 1) / 2), "host memory is wrong");
  ensure_sum(client.recv, rank.size, 8);
  rank.meet();
}

struct Variation {
  const char* algorithm = nullptr;
  const char* connections = nullptr;  // CUDA_DEVICE_MAX_CONNECTIONS
  bool joins = false;  // it makes communicators itself, of which InitAll's transport knows nothing
  bool apart = false;  // ranks are processes
  double limit_s = 0;
};

// Runs it on all kinds of peers.
void check_all(int size, const ranks::Body& body, const Variation& how = {}) {
  for (const Peers& peers : every_peer()) {
    if (how.joins && peers.way == Way::all) continue;
    if (how.apart && peers.way != Way::processes) continue;
    Setup setup = setup_of(peers);
    if (how.limit_s > setup.limit_s) setup.limit_s = how.limit_s;
    std::string name = peers.name;
    if (how.algorithm) {
      setup.environment.emplace_back("PITH_ALGO", how.algorithm);
      name += std::string(", ") + how.algorithm;
    }
    if (how.connections) {
      setup.environment.emplace_back("CUDA_DEVICE_MAX_CONNECTIONS", how.connections);
      setup.environment.emplace_back("PITH_CUDA_STEPS", "auto");
      name += std::string(", connections ") + how.connections;
    }
    check(size, setup, name, body);
  }
}

}  // namespace

TEST_CASE("gpu: a call starts when its stream reaches it and does not block the caller") {
  for (const char* algorithm : {"allreduce:one_shot", "allreduce:two_shot", "allreduce:ring"}) {
    check_all(2, run_held, {.algorithm = algorithm});
  }
  if (thorough()) check_all(4, run_held);
}
TEST_CASE("gpu: calls on two streams, ordered by events") { check_all(2, run_two_streams); }
TEST_CASE("gpu: a captured call is replayed among eager ones") {
  const unsigned replays = on_gpu() ? 1000 : thorough() ? 200 : 30;
  check_all(2, [&](Rank& rank) { run_replays(rank, replays); }, {.limit_s = 40});
}
TEST_CASE("gpu: calls and messages of a group") { check_all(3, run_group); }
TEST_CASE("gpu: several communicators on one device") {
  check_all(2, run_communicators, {.joins = true});
}
// Not run_held: its own copies could wait behind the stream that it holds. Not threads: ranks of
// one process on one device share its queue, where the start of one rank's call would come behind
// the end of another's, which waits for it.
TEST_CASE("gpu: one hardware queue", "[may_hang]") {
  check_all(2, run_two_streams, {.connections = "1", .apart = true});
  check_all(2, run_communicators, {.connections = "1", .joins = true, .apart = true});
}
TEST_CASE("gpu: memory is freed while a stream waits in a call", "[may_hang]") {
  check_all(2, run_free_during_a_call);
}
TEST_CASE("gpu: first calls while other streams wait", "[may_hang]") {
  check_all(3, run_first_calls);
}
TEST_CASE("gpu: an abort lets streams go on", "[may_hang]") { check_all(2, run_abort); }
TEST_CASE("gpu: a killed process lets streams go on", "[may_hang]") {
  Setup setup = setup_of(every_peer().front());
  setup.may_be_killed = true;
  check(3, setup, "processes", run_killed);
}
TEST_CASE("gpu: host memory and blocking calls go along with streams") {
  check_all(2, run_host_memory);
}
// Ranks of one process and device share that stream: the call of one would wait in front of the
// other's, which it needs, unless a group has both.
TEST_CASE("gpu: the null stream") { check_all(2, run_null_stream, {.apart = true}); }
