// What callers do wrong: each refusal names the argument, its value and what was expected.
#include <algorithm>
#include <cstdlib>
#include <limits>
#include <thread>
#include <utility>

#include "catch.hpp"
#include "everywhere.hpp"

using namespace ranks;

namespace {

constexpr auto most = std::numeric_limits<std::size_t>::max();

// Within this time after the second call ranks hear that they disagree.
constexpr double limit_s = 1;

void bad_arguments(Rank& self) {
  const Comm comm(self.join());
  float a[4] = {1, 2, 3, 4};
  float b[16] = {};
  const auto reduce = [&](const void* send, void* recv, std::size_t count, int type, int op,
                          pithComm_t on, pithStream_t stream) {
    return pithAllReduce(send, recv, count, static_cast<pithDataType_t>(type),
                         static_cast<pithRedOp_t>(op), on, stream);
  };
  constexpr auto bad = pithInvalidArgument;
  fails(reduce(nullptr, b, 4, 7, 0, comm, nullptr), bad, {"pithAllReduce", "send is NULL"});
  fails(reduce(a, nullptr, 4, 7, 0, comm, nullptr), bad, {"recv is NULL"});
  for (const int type : wild_types) {
    fails(reduce(a, b, 4, type, 0, comm, nullptr), bad,
          {"type is " + std::to_string(type), "expected 0 to 13"});
  }
  for (const int op : wild_ops) {
    fails(reduce(a, b, 4, 7, op, comm, nullptr), bad,
          {"op is " + std::to_string(op), "expected 0 to 10"});
  }
  fails(reduce(a, b, 4, 7, 0, nullptr, nullptr), bad, {"comm is NULL"});
  fails(reduce(a, b, 4, 7, 0, comm, a), bad, {"stream is 0x", "expected NULL"});
  fails(reduce(a, b, most, 7, 0, comm, nullptr), bad, {"count is", "at most"});
  fails(reduce(a, b, most / 8 + 1, 8, 0, comm, nullptr), bad, {"count is", "at most"});

  const auto broadcast = [&](const void* send, void* recv, std::size_t count, int root) {
    return pithBroadcast(send, recv, count, pithFloat32, root, comm, nullptr);
  };
  fails(broadcast(a, b, 4, self.size), bad, {"pithBroadcast", "root is", "expected 0 to"});
  fails(broadcast(a, b, 4, -1), bad, {"root is -1"});
  fails(broadcast(nullptr, b, 4, self.rank), bad, {"send is NULL"});
  fails(broadcast(a, nullptr, 4, 0), bad, {"recv is NULL"});
  fails(broadcast(a, b, most, 0), bad, {"count is"});

  fails(pithAllGather(nullptr, b, 4, pithFloat32, comm, nullptr), bad, {"pithAllGather", "send"});
  fails(pithAllGather(a, nullptr, 4, pithFloat32, comm, nullptr), bad, {"recv is NULL"});
  fails(pithAllGather(a, b, most / 8, pithFloat32, comm, nullptr), bad, {"count is"});
  fails(pithBarrier(nullptr, nullptr), bad, {"pithBarrier", "comm is NULL"});
  fails(pithBarrier(comm, a), bad, {"stream is"});
  fails(pithCommCount(comm, nullptr), bad, {"pithCommCount", "count is NULL"});
  fails(pithCommUserRank(comm, nullptr), bad, {"pithCommUserRank", "rank is NULL"});
  int number = 0;
  fails(pithCommCount(nullptr, &number), bad, {"comm is NULL"});

  // Nothing was sent and nothing changed: all ranks go on.
  ok(reduce(a, b, 4, 7, 0, comm, nullptr));
  ensure(b[3] == 4.0f * static_cast<float>(self.size), "a wrong sum after refused calls");
}

void bad_creation(Rank&) {
  constexpr auto bad = pithInvalidArgument;
  fails(pithGetVersion(nullptr), bad, {"version is NULL"});
  fails(pithGetUniqueId(nullptr), bad, {"id is NULL"});
  pithUniqueId id;
  ok(pithGetUniqueId(&id));
  pithComm_t comm = nullptr;
  fails(pithCommInitRank(nullptr, 1, id, 0), bad, {"comm is NULL"});
  fails(pithCommInitRank(&comm, 0, id, 0), bad, {"nranks is 0", "at least 1"});
  fails(pithCommInitRank(&comm, -3, id, 0), bad, {"nranks is -3"});
  fails(pithCommInitRank(&comm, 2'000'000'000, id, 0), bad,
        {"nranks is 2000000000", "at most 1048576"});
  fails(pithCommInitRank(&comm, 2, id, 2), bad, {"rank is 2", "expected 0 to 1"});
  fails(pithCommInitRank(&comm, 2, id, -1), bad, {"rank is -1"});
  pithUniqueId garbage;
  std::fill(std::begin(garbage.internal), std::end(garbage.internal), 'x');
  fails(pithCommInitRank(&comm, 1, garbage, 0), bad, {"pithCommInitRank: id", "pithGetUniqueId"});
  fails(pithCommInitRankConfig(&comm, 1, garbage, 0, nullptr), bad, {"pithCommInitRankConfig: id"});
  // The head is right, the address is not one.
  pithUniqueId torn = id;
  std::fill(std::begin(torn.internal) + 24, std::end(torn.internal), '?');
  ensure(pithCommInitRank(&comm, 1, torn, 0) != pithSuccess, "a torn id was taken");
  const int device = 0;
  fails(pithCommInitAll(nullptr, 1, nullptr), bad, {"comms is NULL"});
  fails(pithCommInitAll(&comm, 0, nullptr), bad, {"n is 0"});
  fails(pithCommInitAll(&comm, 2'000'000'000, nullptr), bad, {"n is 2000000000", "at most"});
  fails(pithCommInitAll(&comm, 1, &device), bad, {"devices"});
  ensure(comm == nullptr, "a refused call made a communicator");
  ok(pithCommInitRank(&comm, 1, id, 0));
  ok(pithCommDestroy(comm));
}

void messages(Rank& self) {
  ensure(std::string(pithGetLastError(nullptr)).empty(), "a message before any error");
  for (int code = -1; code < 12; ++code) {
    ensure(*pithGetErrorString(static_cast<pithResult_t>(code)) != 0, "no text for a code");
  }
  int version = 0;
  ok(pithGetVersion(&version));
  ensure(version == PITH_VERSION_CODE, "a wrong version");
  fails(pithGetVersion(nullptr), pithInvalidArgument, {"version"});
  std::string other;
  std::thread([&] {
    other = pithGetLastError(nullptr);
    pithMemAlloc(nullptr, 1);
  }).join();
  ensure(other.empty(), "another thread's message");
  ensure(std::string(pithGetLastError(nullptr)).find("version") != std::string::npos,
         "another thread has changed this one's message");
  const Comm comm(self.join());
  ensure(std::string(pithGetLastError(comm)).empty(), "a new communicator has a message");
  fails(pithAllReduce(nullptr, nullptr, 1, pithInt8, pithSum, comm, nullptr), pithInvalidArgument,
        {"send"});
  ensure(std::string(pithGetLastError(comm)).find("send is NULL") != std::string::npos,
         "the communicator does not know its last error");
  fails(pithGetVersion(nullptr), pithInvalidArgument, {"version"});
  ensure(std::string(pithGetLastError(comm)).empty(), "another call's message");
}

void finalized(Rank& self) {
  const Comm comm(self.join());
  ok(pithBarrier(comm, nullptr));
  ok(pithCommFinalize(comm));
  char byte = 0;
  fails(pithAllReduce(&byte, &byte, 1, pithInt8, pithSum, comm, nullptr), pithInvalidArgument,
        {"finalized"});
  fails(pithBarrier(comm, nullptr), pithInvalidArgument, {"finalized"});
  ok(pithCommFinalize(nullptr));
  ok(pithCommDestroy(nullptr));
  ok(pithCommAbort(nullptr));
}

// What every rank gets from a start-up that must fail.
void starts_badly(int size, Setup setup, const Body& body) {
  setup.limit_s = 15;
  CHECK(run(size, setup, body) == "");
}

pithResult_t init(Rank& self, int size, int rank) {
  pithComm_t comm = nullptr;
  const pithUniqueId id = self.id();
  const pithResult_t result = pithCommInitRank(&comm, size, id, rank);
  self.meet();  // the root's process must outlive the others' failure
  if (result == pithSuccess) pithCommDestroy(comm);
  return result;
}

// Ranks that disagree on a call: an error on all, soon, and revoked from then on.
using Call = std::function<pithResult_t(pithComm_t)>;

// Even ranks make one call, odd ones the other, as soon as they have left a barrier. The error that
// both get, in words.
std::string disagree(Rank& self, pithComm_t comm, const Call& even, const Call& odd) {
  // Others may have come to the disagreement before this rank has left the barrier.
  pithResult_t result = pithBarrier(comm, nullptr);
  self.slot(self.rank) = static_cast<std::uint64_t>(now_s() * 1e6);
  if (result == pithSuccess) result = (self.rank % 2 ? odd : even)(comm);
  // An eager rank may have returned. It hears of it in its next call that has not been sent before
  // anybody knew.
  for (int next = 0; result == pithSuccess && next < 2; ++next) result = pithBarrier(comm, nullptr);
  std::uint64_t last_out_us = 0;
  for (int r = 0; r < self.size; ++r) last_out_us = std::max(last_out_us, self.slot(r).load());
  self.in_time(now_s() - static_cast<double>(last_out_us) / 1e6, limit_s, "to hear of a mismatch");
  std::string text = pithGetLastError(nullptr);
  ensure(result == pithInvalidUsage, "code " + std::to_string(result) + ": " + text);
  const auto says = [&](const char* part) { return text.find(part) != std::string::npos; };
  // The odd one out, and whichever of the others came to the call first.
  ensure(says("rank 1 called ") && (says("rank 0 called ") || says("rank 2 called ")),
         "\"" + text + "\" does not name the ranks");
  ensure(pithBarrier(comm, nullptr) != pithSuccess, "not revoked");
  return text;
}

// `differs`: that the error says in words; both calls may be the first that is named.
void disagree(const Call& even, const Call& odd, const std::vector<std::string>& differs = {}) {
  const auto body = [&](Rank& self) {
    const Comm comm(self.join());
    const std::string text = disagree(self, comm, even, odd);
    ensure(text.find("call 2 ") != std::string::npos, text + " does not name the call");
    ensure(differs.empty() ||
               std::ranges::any_of(
                   differs, [&](const std::string& words) { return text.ends_with(": " + words); }),
           text + " does not say what differs");
    self.meet();
  };
  for (Setup setup : every_link()) {
    setup.limit_s = 10;
    for (const int size : {2, 3}) {
      INFO(name_of(setup) << ", " << size << " ranks");
      CHECK(run_in_time(size, setup, body) == "");
    }
  }
}

Call allreduce(std::size_t count, pithDataType_t type, pithRedOp_t op) {
  return [=](pithComm_t comm) {
    std::vector<char> send(count * 8);
    std::vector<char> recv(count * 8);
    return pithAllReduce(send.data(), recv.data(), count, type, op, comm, nullptr);
  };
}

Call broadcast(std::size_t count, int root) {
  return [=](pithComm_t comm) {
    std::vector<char> buffer(count);
    return pithBroadcast(buffer.data(), buffer.data(), count, pithInt8, root, comm, nullptr);
  };
}

Call reduce_scatter(std::size_t count, pithRedOp_t op, pithDataType_t type = pithInt8) {
  return [=](pithComm_t comm) {
    std::vector<char> send(count * 3 * 8);
    std::vector<char> recv(count * 8);
    return pithReduceScatter(send.data(), recv.data(), count, type, op, comm, nullptr);
  };
}

Call alltoall(std::size_t count) {
  return [=](pithComm_t comm) {
    std::vector<char> send(count * 3);
    std::vector<char> recv(count * 3);
    return pithAlltoAll(send.data(), recv.data(), count, pithInt8, comm, nullptr);
  };
}

Call allgather(std::size_t count) {
  return [=](pithComm_t comm) {
    std::vector<char> send(count);
    std::vector<char> recv(count * 3);
    return pithAllGather(send.data(), recv.data(), count, pithInt8, comm, nullptr);
  };
}

// The odd ranks' counts have the same sum.
Call allgather_v(std::size_t first) {
  return [=](pithComm_t comm) {
    std::vector<char> send(20);
    std::vector<char> recv(60);
    const std::size_t counts[] = {first, 20 - first, 7};
    return pithAllGatherV(send.data(), recv.data(), counts, nullptr, pithInt8, comm, nullptr);
  };
}

Call split() {
  return [](pithComm_t comm) {
    pithComm_t made = nullptr;
    const pithResult_t result = pithCommSplit(comm, 0, 0, &made, nullptr);
    if (result == pithSuccess) pithCommDestroy(made);
    return result;
  };
}

Call shrink() {
  return [](pithComm_t comm) {
    pithComm_t made = nullptr;
    const pithResult_t result =
        pithCommShrink(comm, nullptr, 0, &made, nullptr, PITH_SHRINK_DEFAULT);
    if (result == pithSuccess) pithCommDestroy(made);
    return result;
  };
}

// What even and odd ranks call.
std::vector<std::pair<Call, Call>> different_calls() {
  return {{split(), allreduce(8, pithInt8, pithSum)},
          {broadcast(8, 0), split()},
          {[](pithComm_t comm) { return pithBarrier(comm, nullptr); }, broadcast(0, 0)},
          {broadcast(9, 1), broadcast(9, 0)},
          {reduce_scatter(90, pithSum, pithInt32), reduce_scatter(90, pithSum, pithFloat32)},
          {reduce_scatter(90, pithSum), reduce_scatter(90, pithMin)},
          {alltoall(90), allgather(90)}};
}

// Each on a communicator of its own, whose parent goes on.
void disagree_on_children(Rank& self) {
  const Comm parent(self.join());
  for (const auto& [even, odd] : different_calls()) {
    pithComm_t made = nullptr;
    ok(pithCommSplit(parent, 0, self.rank, &made, nullptr));
    const Comm child(made);
    disagree(self, child, even, odd);
  }
  ok(pithBarrier(parent, nullptr));
  self.meet();
}

Call premultiplied(std::size_t count) {
  return [=](pithComm_t comm) {
    char two = 2;
    pithRedOp_t op = pithSum;
    ok(pithRedOpCreatePreMulSum(&op, &two, pithInt8, pithScalarHostImmediate, comm));
    std::vector<char> values(count);
    return pithAllReduce(values.data(), values.data(), count, pithInt8, op, comm, nullptr);
  };
}

}  // namespace

TEST_CASE("bad arguments of collectives", "[misuse]") { on_every_link(2, bad_arguments); }

TEST_CASE("bad arguments alone", "[misuse]") {
  CHECK(run(1, alone(), bad_creation) == "");
  CHECK(run(1, alone(), messages) == "");
  CHECK(run(2, Setup(), finalized) == "");
}

TEST_CASE("a rank is missing at start-up", "[misuse]") {
  Setup setup;
  setup.environment = {{"PITH_INIT_TIMEOUT", "1"}};
  starts_badly(3, setup, [](Rank& self) {
    const double start = now_s();
    if (self.rank == 1) {
      self.id();
      self.meet();
      return;
    }
    fails(init(self, 3, self.rank), pithRemoteError, {"rank 1", "1 s"});
    ensure(now_s() - start < 4, "PITH_INIT_TIMEOUT=1 took long");
  });
}

TEST_CASE("settings that must be the same", "[misuse]") {
  starts_badly(2, {}, [](Rank& self) {
    setenv("PITH_CHUNK", self.rank == 0 ? "4096" : "8192", 1);
    const pithResult_t result = init(self, 2, self.rank);
    fails(result, pithInvalidUsage, {"PITH_CHUNK", "4096", "8192", "rank 0", "rank 1"});
  });
}

TEST_CASE("ranks disagree on a call", "[misuse]") {
  SECTION("count") {
    disagree(allreduce(10, pithInt32, pithSum), allreduce(11, pithInt32, pithSum),
             {"count 10 against 11", "count 11 against 10"});
    disagree(allreduce(10, pithInt32, pithSum), allreduce(0, pithInt32, pithSum));
  }
  SECTION("a long and a short one") {
    disagree(allreduce(200'000, pithInt32, pithSum), allreduce(1, pithInt32, pithSum));
  }
  SECTION("blocks") {
    disagree(alltoall(100), alltoall(101));
    disagree(allgather_v(5), allgather_v(6));
    disagree(allgather_v(10), allgather(10));
  }
  SECTION("algorithms that they choose") {
    disagree(reduce_scatter(100, pithSum), reduce_scatter(100'000, pithSum));
    disagree(reduce_scatter(100, pithSum), alltoall(100));
  }
  SECTION("on communicators of their own") {
    for (const Setup& setup : every_link()) {
      INFO(name_of(setup));
      CHECK(run_in_time(3, setup, disagree_on_children) == "");
    }
  }
  SECTION("a factor") {
    disagree(premultiplied(100), allreduce(100, pithInt8, pithSum),
             {"op premultiplied sum against sum", "op sum against premultiplied sum"});
  }
}

TEST_CASE("ranks disagree on whether to shrink", "[misuse]") {
  disagree(shrink(), allreduce(8, pithInt8, pithSum));
  disagree(broadcast(8, 0), shrink());
  disagree(split(), shrink());
}
