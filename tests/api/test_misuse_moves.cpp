// Bad arguments of the collectives with a root or one block a rank, of operations and
// registrations.
#include <algorithm>
#include <csignal>
#include <limits>

#include "catch.hpp"
#include "everywhere.hpp"

using namespace ranks;

namespace {

constexpr auto most = std::numeric_limits<std::size_t>::max();

void bad_moves(Rank& self) {
  const Comm comm(self.join());
  constexpr auto bad = pithInvalidArgument;
  constexpr auto f32 = pithFloat32;
  float a[16] = {1, 2, 3, 4};
  float b[16] = {};
  const auto wild_type = static_cast<pithDataType_t>(wild_types.back());
  const auto wild_op = static_cast<pithRedOp_t>(wild_ops.front());
  const int me = self.rank;
  const int out = self.size;
  fails(pithReduce(nullptr, b, 4, f32, pithSum, 0, comm, nullptr), bad, {"pithReduce", "send is"});
  fails(pithReduce(a, nullptr, 4, f32, pithSum, me, comm, nullptr), bad, {"recv is NULL"});
  fails(pithReduce(a, b, 4, f32, wild_op, 0, comm, nullptr), bad,
        {"op is", "expected 0 to 10", "pithRedOpCreatePreMulSum"});
  fails(pithReduce(a, b, 4, f32, pithSum, out, comm, nullptr), bad, {"root is", "expected 0 to"});
  fails(pithReduce(a, b, most, f32, pithSum, 0, comm, nullptr), bad, {"count is"});
  fails(pithReduceScatter(nullptr, b, 4, f32, pithSum, comm, nullptr), bad,
        {"pithReduceScatter", "send is NULL"});
  fails(pithReduceScatter(a, nullptr, 4, f32, pithSum, comm, nullptr), bad, {"recv is NULL"});
  fails(pithReduceScatter(a, b, most / 8, f32, pithSum, comm, nullptr), bad, {"recvcount is"});
  fails(pithReduceScatter(a, b, 4, wild_type, pithSum, comm, nullptr), bad, {"type is"});
  fails(pithBcast(nullptr, 4, f32, 0, comm, nullptr), bad, {"pithBcast", "buffer is NULL"});
  fails(pithBcast(a, 4, f32, -1, comm, nullptr), bad, {"root is -1"});
  fails(pithAlltoAll(a, nullptr, 4, f32, comm, nullptr), bad, {"pithAlltoAll", "recv is NULL"});
  fails(pithAlltoAll(a, a, 4, f32, comm, nullptr), bad, {"recv is send", "another buffer"});
  fails(pithAlltoAll(a, b, most / 8, f32, comm, nullptr), bad, {"count is"});
  fails(pithGather(nullptr, b, 4, f32, 0, comm, nullptr), bad, {"pithGather", "send is NULL"});
  fails(pithGather(a, nullptr, 4, f32, me, comm, nullptr), bad, {"recv is NULL"});
  fails(pithGather(a, b, 4, f32, out, comm, nullptr), bad, {"root is"});
  fails(pithGather(a, b, most / 8, f32, 0, comm, nullptr), bad, {"sendcount is"});
  fails(pithScatter(nullptr, b, 4, f32, me, comm, nullptr), bad, {"pithScatter", "send is NULL"});
  fails(pithScatter(a, nullptr, 4, f32, 0, comm, nullptr), bad, {"recv is NULL"});
  fails(pithScatter(a, b, most / 8, f32, 0, comm, nullptr), bad, {"recvcount is"});
  fails(pithScatter(a, b, 4, f32, 0, nullptr, nullptr), bad, {"comm is NULL"});
  fails(pithScatter(a, b, 4, f32, 0, comm, a), bad, {"stream is 0x"});

  fails(pithScan(nullptr, b, 4, f32, pithSum, comm, nullptr), bad, {"pithScan", "send is NULL"});
  fails(pithScan(a, nullptr, 4, f32, pithSum, comm, nullptr), bad, {"recv is NULL"});
  fails(pithScan(a, b, 4, f32, pithAvg, comm, nullptr), bad, {"op is pithAvg (4)", "divide"});
  fails(pithScan(a, b, 4, wild_type, pithSum, comm, nullptr), bad, {"type is"});
  fails(pithExScan(a, b, most, f32, pithSum, comm, nullptr), bad, {"pithExScan", "count is"});
  fails(pithExScan(a, b, 4, f32, pithAvg, comm, nullptr), bad, {"op is pithAvg (4)"});
  if (me > 0) {
    fails(pithExScan(a, nullptr, 4, f32, pithSum, comm, nullptr), bad, {"recv is NULL"});
  }

  // Nothing was sent and nothing changed: all ranks go on.
  ok(pithReduce(a, b, 4, f32, pithSum, 0, comm, nullptr));
  ensure(me != 0 || b[3] == 4.0f * static_cast<float>(out), "a wrong sum after refused calls");
}

// Operations on bits and truth values are for integers, whatever the call.
void bits_of_floats(Rank& self) {
  const Comm comm(self.join());
  constexpr auto bad = pithInvalidArgument;
  float a[16] = {};
  float b[16] = {};
  const std::size_t twos[] = {2, 2, 2};
  fails(
      pithAllReduce(a, b, 4, pithFloat32, pithBand, comm, nullptr), bad,
      {"pithAllReduce: op is pithBand (5) and type is pithFloat32 (7), expected an integer type"});
  fails(pithReduce(a, b, 4, pithFloat16, pithBor, 0, comm, nullptr), bad,
        {"pithReduce", "pithBor (6)", "pithFloat16"});
  fails(pithReduceScatter(a, b, 2, pithFloat64, pithBxor, comm, nullptr), bad,
        {"pithReduceScatter", "pithBxor (7)", "pithFloat64"});
  fails(pithReduceScatterV(a, b, twos, pithBfloat16, pithLand, comm, nullptr), bad,
        {"pithReduceScatterV", "pithLand (8)", "pithBfloat16"});
  fails(pithScan(a, b, 4, pithFloat8e4m3, pithLor, comm, nullptr), bad,
        {"pithScan", "pithLor (9)", "pithFloat8e4m3"});
  fails(pithExScan(a, b, 4, pithFloat8e5m2, pithLxor, comm, nullptr), bad,
        {"pithExScan", "pithLxor (10)", "pithFloat8e5m2"});
  fails(pithAllReduce(a, b, 0, pithFloat32, pithBand, comm, nullptr), bad, {"pithBand (5)"});
  std::int32_t one = 1;
  ok(pithAllReduce(&one, &one, 1, pithInt32, pithLand, comm, nullptr));
  ensure(one == 1, "a wrong result after refused calls");
}

void bad_uneven(Rank& self) {
  const Comm comm(self.join());
  constexpr auto bad = pithInvalidArgument;
  constexpr auto f32 = pithFloat32;
  float a[16] = {1, 2, 3, 4};
  float b[16] = {};
  const std::size_t twos[] = {2, 2, 2};
  const std::size_t large[] = {1, most / 16, most / 4};
  const std::size_t far[] = {0, most / 4, 0};
  std::size_t other[] = {2, 2, 2};
  other[self.rank] = 3;
  const auto own = "[" + std::to_string(self.rank) + "]";
  fails(pithAllGatherV(a, b, nullptr, nullptr, f32, comm, nullptr), bad,
        {"pithAllGatherV", "recvcounts is NULL"});
  fails(pithAllGatherV(nullptr, b, twos, nullptr, f32, comm, nullptr), bad, {"send is NULL"});
  fails(pithAllGatherV(a, nullptr, twos, nullptr, f32, comm, nullptr), bad, {"recv is NULL"});
  fails(pithAllGatherV(a, b, large, nullptr, f32, comm, nullptr), bad,
        {"recvcounts[2] is", "behind", "expected an end of at most"});
  fails(pithAllGatherV(a, b, twos, far, f32, comm, nullptr), bad,
        {"recvcounts[1] is 2", "displs[1]", "expected an end of at most"});
  fails(pithReduceScatterV(a, b, nullptr, f32, pithSum, comm, nullptr), bad,
        {"pithReduceScatterV", "recvcounts is NULL"});
  fails(pithReduceScatterV(a, nullptr, twos, f32, pithSum, comm, nullptr), bad, {"recv is NULL"});
  fails(pithReduceScatterV(a, b, twos, f32, static_cast<pithRedOp_t>(wild_ops.front()), comm,
                           nullptr),
        bad, {"op is", "expected 0 to 10"});
  fails(pithAlltoAllV(a, nullptr, nullptr, b, twos, nullptr, f32, comm, nullptr), bad,
        {"pithAlltoAllV", "sendcounts is NULL"});
  fails(pithAlltoAllV(a, twos, nullptr, b, nullptr, nullptr, f32, comm, nullptr), bad,
        {"recvcounts is NULL"});
  fails(pithAlltoAllV(a, twos, nullptr, a, twos, nullptr, f32, comm, nullptr), bad,
        {"recv is send", "another buffer"});
  fails(pithAlltoAllV(a, twos, nullptr, b, other, nullptr, f32, comm, nullptr), bad,
        {"recvcounts" + own + " is 3", "sendcounts" + own, "is 2"});
  fails(pithAlltoAllV(a, twos, nullptr, b, twos, far, f32, comm, nullptr), bad, {"rdispls[1]"});
  fails(pithAlltoAllV(a, twos, nullptr, b, twos, nullptr, f32, nullptr, nullptr), bad,
        {"comm is NULL"});

  // Nothing was sent and nothing changed: all ranks go on.
  ok(pithAlltoAllV(a, twos, nullptr, b, twos, nullptr, f32, comm, nullptr));
  ensure(b[3] == (self.rank == 0 ? 2.0F : 4.0F) || self.rank == 2, "a wrong exchange");
}

// The other ranks hear of it, in this call or in the next one.
void different_counts(Rank& self, std::size_t given, std::size_t expected) {
  const Comm comm(self.join());
  const Buffer send(3 * given * sizeof(float), false);
  const Buffer recv(3 * std::max(given, expected) * sizeof(float), false);
  const std::size_t sent[] = {given, given, given};
  std::size_t received[] = {given, given, given};
  if (self.rank == 1) received[2] = expected;
  const double begun_s = now_s();
  pithResult_t result = pithAlltoAllV(send.data(), sent, nullptr, recv.data(), received, nullptr,
                                      pithFloat32, comm, nullptr);
  for (int next = 0; result == pithSuccess && next < 2; ++next) result = pithBarrier(comm, nullptr);
  const std::string text = pithGetLastError(nullptr);
  ensure(result == pithInvalidUsage, "code " + std::to_string(result) + ": " + text);
  ensure(text.find("rank 2 sent ") != std::string::npos, text + " does not name rank 2");
  self.in_time(now_s() - begun_s, 2, "to hear of a mismatch");
  ensure(pithBarrier(comm, nullptr) != pithSuccess, "not revoked");
}

void bad_operations(Rank& self) {
  const Comm comm(self.join());
  const Comm other([&] {
    pithComm_t made = nullptr;
    ok(pithCommInitRank(&made, self.size, self.id(1), self.rank));
    return made;
  }());
  constexpr auto bad = pithInvalidArgument;
  float two = 2;
  float a[4] = {1, 2, 3, 4};
  pithRedOp_t op = pithSum;
  const auto create = [&](pithRedOp_t* made, void* scalar, int residence, pithComm_t on) {
    return pithRedOpCreatePreMulSum(made, scalar, pithFloat32,
                                    static_cast<pithScalarResidence_t>(residence), on);
  };
  fails(create(nullptr, &two, 1, comm), bad, {"pithRedOpCreatePreMulSum", "op is NULL"});
  fails(create(&op, nullptr, 1, comm), bad, {"scalar is NULL"});
  fails(create(&op, &two, 1, nullptr), bad, {"comm is NULL"});
#if !defined(__SANITIZE_ADDRESS__)
  fails(create(&op, &two, 2, comm), bad, {"residence is 2", "pithScalarHostImmediate"});
#endif
  ensure(op == pithSum, "a refused call made a handle");
  ok(create(&op, &two, 1, comm));
  fails(pithAllReduce(a, a, 4, pithFloat64, op, comm, nullptr), bad,
        {"op ", "made for type float", "type double"});
  fails(pithAllReduce(a, a, 4, pithFloat32, op, other, nullptr), bad, {"op is", "communicator"});
  fails(pithRedOpDestroy(op, other), bad, {"op is", "pithRedOpCreatePreMulSum"});
  fails(pithRedOpDestroy(pithMax, comm), bad, {"op is pithMax (2)"});
  fails(pithRedOpDestroy(op, nullptr), bad, {"comm is NULL"});
  ok(pithAllReduce(a, a, 4, pithFloat32, op, comm, nullptr));
  ensure(a[3] == 8.0f * static_cast<float>(self.size), "a wrong sum after refused calls");
  ok(pithRedOpDestroy(op, comm));
  fails(pithAllReduce(a, a, 4, pithFloat32, op, comm, nullptr), bad, {"op is"});
  fails(pithRedOpDestroy(op, comm), bad, {"op is"});

  void* handle = nullptr;
  fails(pithCommRegister(comm, nullptr, 4, &handle), bad, {"pithCommRegister", "buffer is NULL"});
  fails(pithCommRegister(comm, a, 0, &handle), bad, {"bytes is 0"});
  fails(pithCommRegister(comm, a, 4, nullptr), bad, {"handle is NULL"});
  fails(pithCommRegister(nullptr, a, 4, &handle), bad, {"comm is NULL"});
  ok(pithCommRegister(comm, a, sizeof a, &handle));
  fails(pithCommDeregister(other, handle), bad, {"pithCommDeregister", "handle is 0x"});
  fails(pithCommDeregister(nullptr, handle), bad, {"comm is NULL"});
  ok(pithBarrier(comm, nullptr));

  // On a communicator that is no more, what was made can still be given back.
  ok(create(&op, &two, 1, other));
  ok(pithCommFinalize(other));
  ok(pithRedOpDestroy(op, other));
  ok(pithCommDeregister(comm, handle));
}

void memory(Rank&) {
  constexpr auto bad = pithInvalidArgument;
  void* a = nullptr;
  fails(pithMemAlloc(nullptr, 8), bad, {"pointer is NULL"});
  fails(pithMemAlloc(&a, most), pithSystemError, {"bytes"});
  fails(pithMemAlloc(&a, most / 2), pithSystemError, {"bytes"});
  ensure(a == nullptr, "a refused allocation set the pointer");
  ok(pithMemFree(nullptr));
  int local = 0;
  fails(pithMemFree(&local), bad, {"pithMemFree: 0x", "pithMemAlloc"});
  for (const std::size_t bytes : {0u, 1u, 100u, 5000u, 5'000'000u}) {
    ok(pithMemAlloc(&a, bytes));
    ensure(reinterpret_cast<std::uintptr_t>(a) % 64 == 0, "not aligned to 64 bytes");
    fails(pithMemFree(static_cast<char*>(a) + 1), bad, {"pithMemAlloc"});
    ok(pithMemFree(a));
    fails(pithMemFree(a), bad, {"freed"});
  }
}

// Of the calls that make and ask communicators. Afterwards all go on, by a split too.
void bad_lives(Rank& self) {
  const Comm comm(self.join());
  constexpr auto bad = pithInvalidArgument;
  pithComm_t made = nullptr;
  const pithUniqueId id = self.id(1);
  pithConfig_t config = PITH_CONFIG_INITIALIZER;
  config.magic = 7;
  fails(pithCommInitRankConfig(&made, 2, id, self.rank, &config), bad, {"magic is 0x7"});
  fails(pithCommSplit(comm, 0, 0, &made, &config), bad, {"pithCommSplit", "magic is 0x7"});
  config = PITH_CONFIG_INITIALIZER;
  config.blocking = 7;
  fails(pithCommInitRankConfig(&made, 2, id, self.rank, &config), bad, {"blocking is 7"});
  pithConfig_t late = PITH_CONFIG_INITIALIZER;
  late.timeout = -1;
  fails(pithCommInitRankConfig(&made, 2, id, self.rank, &late), bad,
        {"timeout is -1", "expected at least 0"});
  fails(pithCommSplit(comm, 0, 0, nullptr, nullptr), bad, {"newcomm is NULL"});
  fails(pithCommSplit(comm, -2, 0, &made, nullptr), bad, {"color is -2", "PITH_SPLIT_NOCOLOR"});
  fails(pithCommSplit(nullptr, 0, 0, &made, nullptr), bad, {"comm is NULL"});
  const auto shrink = [&](int* exclude, int n, int flags) {
    return pithCommShrink(comm, exclude, n, &made, nullptr, flags);
  };
  int out = self.size;
  int own = self.rank;
  fails(shrink(nullptr, 0, 7), bad, {"pithCommShrink", "flags is 7", "PITH_SHRINK_ABORT"});
  fails(shrink(&out, 1, PITH_SHRINK_DEFAULT), bad, {"exclude[0] is 2", "expected 0 to 1"});
  fails(shrink(&own, 1, PITH_SHRINK_DEFAULT), bad, {"exclude[0]", "calling rank"});
  fails(shrink(&out, 0, PITH_SHRINK_DEFAULT), bad, {"n is 0", "at least 1"});
  fails(pithCommShrink(comm, nullptr, 0, nullptr, nullptr, PITH_SHRINK_DEFAULT), bad,
        {"pithCommShrink", "newcomm is NULL"});
  fails(pithCommShrink(nullptr, nullptr, 0, &made, nullptr, PITH_SHRINK_DEFAULT), bad,
        {"pithCommShrink", "comm is NULL"});
  fails(pithCommShrink(comm, nullptr, 0, &made, &config, PITH_SHRINK_DEFAULT), bad,
        {"pithCommShrink", "blocking is 7", "expected 0 or 1"});
  ensure(made == nullptr, "a refused call made a communicator");

  int n = 0;
  pithResult_t result = pithSuccess;
  std::uint64_t last = 0;
  fails(pithCommGetAsyncError(nullptr, &result), bad, {"pithCommGetAsyncError", "comm is NULL"});
  fails(pithCommGetFailed(nullptr, nullptr, &n), bad, {"pithCommGetFailed", "comm is NULL"});
  fails(pithCommGetLastCompleted(nullptr, &last), bad, {"GetLastCompleted", "comm is NULL"});
  fails(pithCommGetAsyncError(comm, nullptr), bad, {"result is NULL"});
  fails(pithCommGetFailed(comm, nullptr, nullptr), bad, {"n is NULL"});
  fails(pithCommGetLastCompleted(comm, nullptr), bad, {"call is NULL"});
  ok(pithCommGetFailed(comm, nullptr, &n));
  ensure(n == 0, "somebody has failed");
  ok(pithCommSplit(comm, 0, 0, &made, nullptr));
  const Comm child(made);
  ok(pithBarrier(child, nullptr));
}

// A communicator that never comes to be, for the other rank does not come.
void never_made(Rank& self) {
  constexpr auto bad = pithInvalidArgument;
  pithConfig_t config = PITH_CONFIG_INITIALIZER;
  config.blocking = 0;
  pithComm_t comm = nullptr;
  pithComm_t made = nullptr;
  int n = 0;
  ensure(pithCommInitRankConfig(&comm, 2, self.id(), 0, &config) == pithInProgress, "is made");
  fails(pithCommCount(comm, &n), bad, {"pithCommCount", "comm is busy", "pithCommGetAsyncError"});
  fails(pithCommSplit(comm, 0, 0, &made, nullptr), bad, {"pithCommSplit", "comm is busy"});
  fails(pithCommFinalize(comm), bad, {"pithCommFinalize", "comm is busy"});
  fails(pithCommShrink(comm, nullptr, 0, &made, nullptr, PITH_SHRINK_ABORT), bad,
        {"pithCommShrink", "comm is not ready: it is still being made"});
  wait_until([&] {
    pithResult_t result = pithInProgress;
    ok(pithCommGetAsyncError(comm, &result));
    return result == pithRemoteError;
  });
  const auto refused = [&](pithResult_t result, const char* function) {
    fails(result, bad, {function, "comm is not ready: its creation failed"});
  };
  refused(pithCommCount(comm, &n), "pithCommCount");
  refused(pithCommSplit(comm, 0, 0, &made, nullptr), "pithCommSplit");
  refused(pithCommShrink(comm, nullptr, 0, &made, nullptr, PITH_SHRINK_DEFAULT), "pithCommShrink");
  refused(pithCommGetFailed(comm, nullptr, &n), "pithCommGetFailed");
  refused(pithBarrier(comm, nullptr), "pithBarrier");
  ok(pithCommDestroy(comm));
  ok(pithCommInitRank(&made, 1, self.id(1), 0));
  ok(pithBarrier(made, nullptr));
  ok(pithCommDestroy(made));
}

// Room that is too small for the dead; then with enough, and a shrink that works.
void too_little_room(Rank& self) {
  const Comm comm(self.join());
  ok(pithBarrier(comm, nullptr));
  self.meet();
  if (self.rank >= 2) std::raise(SIGKILL);
  wait_until([&] {
    int n = 0;
    ok(pithCommGetFailed(comm, nullptr, &n));
    return n == 2;
  });
  int ranks[2] = {-1, -1};
  for (const int room : {-1, 0, 1}) {
    int n = room;
    fails(pithCommGetFailed(comm, ranks, &n), pithInvalidArgument,
          {"pithCommGetFailed", "*n is " + std::to_string(room), "expected room for 2 ranks"});
    ensure(n == room && ranks[0] == -1, "a refused call wrote something");
  }
  int n = 2;
  ok(pithCommGetFailed(comm, ranks, &n));
  ensure(n == 2 && ranks[0] == 2 && ranks[1] == 3, "the wrong ranks");
  pithComm_t made = nullptr;
  ok(pithCommShrink(comm, nullptr, 0, &made, nullptr, PITH_SHRINK_DEFAULT));
  const Comm smaller(made);
  ok(pithBarrier(smaller, nullptr));
}

// Another one, of all ranks of `comm`. Threads make none out of nothing.
pithComm_t another(Rank& self, Way way, pithComm_t comm, int which) {
  pithComm_t made = nullptr;
  ok(way == Way::all ? pithCommSplit(comm, 0, 0, &made, nullptr)
                     : pithCommInitRank(&made, self.size, self.id(which), self.rank));
  return made;
}

// Handles and requests that are no more, alone and in a group, and a communicator after them.
void dead_handles(Rank& self, Way way) {
  constexpr auto bad = pithInvalidArgument;
  float a[4] = {};
  int n = 0;
  pithResult_t result = pithSuccess;
  pithComm_t dead[2] = {self.join(), nullptr};
  dead[1] = another(self, way, dead[0], 1);
  const Comm alive(another(self, way, dead[0], 2));
  pithComm_t child = nullptr;
  pithRequest_t request = nullptr;
  ok(pithGroupStart());
  ok(pithAllReduce(a, a, 4, pithFloat32, pithSum, dead[0], nullptr));
  ok(pithGroupEndAsync(&request));
  ok(pithWait(request));
  fails(pithWait(request), bad, {"pithWait", "request has ended"});
  fails(pithTest(request, &n), bad, {"pithTest", "request has ended"});
  ok(pithCommDestroy(dead[0]));
  ok(pithCommAbort(dead[1]));
  for (pithComm_t comm : dead) {
    fails(pithAllReduce(a, a, 4, pithFloat32, pithSum, comm, nullptr), bad,
          {"pithAllReduce", "comm was destroyed"});
    fails(pithBarrier(comm, nullptr), bad, {"pithBarrier", "comm was destroyed"});
    fails(pithCommCount(comm, &n), bad, {"comm was destroyed"});
    fails(pithCommGetAsyncError(comm, &result), bad, {"comm was destroyed"});
    fails(pithCommSplit(comm, 0, 0, &child, nullptr), bad, {"comm was destroyed"});
    fails(pithCommFinalize(comm), bad, {"comm was destroyed"});
    fails(pithCommDestroy(comm), bad, {"pithCommDestroy", "comm was destroyed"});
    fails(pithCommAbort(comm), bad, {"pithCommAbort", "comm was destroyed"});
    static_cast<void>(pithGetLastError(comm));
    // Then nothing of the group runs.
    std::int64_t sum = -1;
    const std::int64_t one = 1;
    ok(pithGroupStart());
    ok(pithAllReduce(&one, &sum, 1, pithInt64, pithSum, alive, nullptr));
    fails(pithBcast(a, 4, pithFloat32, 0, comm, nullptr), bad, {"pithBcast", "was destroyed"});
    fails(pithSend(a, 1, pithFloat32, 0, comm, nullptr), bad, {"pithSend", "was destroyed"});
    fails(pithGroupEnd(), bad, {"pithBcast", "comm was destroyed"});
    ensure(sum == -1, "a refused group has run");
    ok(pithAllReduce(&one, &sum, 1, pithInt64, pithSum, alive, nullptr));
    ensure(sum == self.size, "a wrong sum after a refused group");
  }
  const Comm comm(another(self, way, alive, 3));
  ok(pithBarrier(comm, nullptr));
}

}  // namespace

TEST_CASE("handles that are no more", "[misuse]") {
  for (const Setup& setup : every_link()) {
    INFO(name_of(setup));
    CHECK(run(2, setup, [&](Rank& self) { dead_handles(self, setup.way); }) == "");
  }
}

TEST_CASE("bad arguments of the life of communicators", "[misuse]") {
  CHECK(run(2, Setup(), bad_lives) == "");
}

TEST_CASE("calls on a communicator that is not there", "[misuse]") {
  Setup setup;
  setup.way = Way::alone;
  setup.environment = {{"PITH_INIT_TIMEOUT", "1"}};
  CHECK(run(1, setup, never_made) == "");
}

TEST_CASE("too little room for the dead", "[misuse]") {
  Setup setup;
  setup.may_be_killed = true;
  CHECK(run(4, setup, too_little_room) == "");
}

TEST_CASE("bad arguments of moves", "[misuse]") { on_every_link(2, bad_moves); }

TEST_CASE("operations on bits refuse floats", "[misuse]") {
  CHECK(run(3, Setup(), bits_of_floats) == "");
}

TEST_CASE("bad arguments of moves with blocks of different sizes", "[misuse][uneven]") {
  CHECK(run(3, Setup(), bad_uneven) == "");
}

// Also by a whole chunk, and where one of the two takes the block for empty.
TEST_CASE("ranks count a block of an alltoall differently", "[misuse][uneven]") {
  const std::vector<Setup> links = every_link();
  std::size_t link = 0;
  for (const auto& [given, expected] : std::vector<std::pair<std::size_t, std::size_t>>{
           {10, 9}, {10, 11}, {0, 5}, {5, 0}, {16'384, 0}, {16'384, 32'768}, {32'768, 16'384}}) {
    const Setup& setup = links[link++ % links.size()];
    INFO(name_of(setup) << ", " << given << " against " << expected);
    CHECK(run_in_time(3, setup, [&, sent = given, wanted = expected](Rank& self) {
            different_counts(self, sent, wanted);
          }) == "");
  }
}

TEST_CASE("bad operations, registrations and memory", "[misuse]") {
  CHECK(run(2, Setup(), bad_operations) == "");
  CHECK(run(1, alone(), memory) == "");
}
