// Ranks that learn (PITH_LEARN) make calls by every rival and variant in turn: each gives the
// result. What is learnt of them is the time of the rank that takes longest.
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

#include "catch.hpp"
#include "ranks.hpp"
#include "tests/model/temporary_folder.hpp"

using namespace ranks;

namespace {

constexpr std::size_t count = std::size_t{32} << 10;  // of a vector, or of all blocks
constexpr int calls = 500;  // of broadcasts twice as many: until all rivals have had their turn

// Element i of a vector of `rank` in call `call`.
std::int32_t value(int rank, int call, std::size_t i) {
  return static_cast<std::int32_t>(i) * 3 + rank * 1000 + call;
}

void fill(const Rank& self, int call, std::int32_t* send) {
  for (std::size_t i = 0; i < count; ++i) send[i] = value(self.rank, call, i);
}

std::int32_t sum(const Rank& self, int call, std::size_t i) {
  std::int32_t total = 0;
  for (int rank = 0; rank < self.size; ++rank) total += value(rank, call, i);
  return total;
}

template <class Expected>
void check(const char* what, int call, const std::int32_t* recv, std::size_t length,
           Expected expected) {
  for (std::size_t i = 0; i < length; ++i) {
    if (recv[i] == expected(i)) continue;
    ensure(false, std::string(what)
                      .append(", call ")
                      .append(std::to_string(call))
                      .append(", element ")
                      .append(std::to_string(i)));
  }
}

void call_often(Rank& self) {
  const Comm comm(self.join());
  const Buffer sent(count * 4, false);
  const Buffer received(count * 4, false);
  std::int32_t* const send = sent.as<std::int32_t>();
  std::int32_t* const recv = received.as<std::int32_t>();
  const std::size_t block = count / static_cast<std::size_t>(self.size);
  const std::size_t own = block * static_cast<std::size_t>(self.rank);
  for (int call = 0; call < calls; ++call) {
    fill(self, call, send);
    ok(pithAllReduce(send, recv, count, pithInt32, pithSum, comm, nullptr));
    check("allreduce", call, recv, count, [&](std::size_t i) { return sum(self, call, i); });
    ok(pithReduceScatter(send, recv, block, pithInt32, pithSum, comm, nullptr));
    check("reduce-scatter", call, recv, block,
          [&](std::size_t i) { return sum(self, call, own + i); });
    for (const int root : {call % self.size, (call + 1) % self.size}) {
      ok(pithBroadcast(send, recv, count, pithInt32, root, comm, nullptr));
      check("broadcast", call, recv, count, [&](std::size_t i) { return value(root, call, i); });
    }
    ok(pithAllGather(send, recv, block, pithInt32, comm, nullptr));
    check("allgather", call, recv, block * static_cast<std::size_t>(self.size),
          [&](std::size_t i) { return value(static_cast<int>(i / block), call, i % block); });
    ok(pithAlltoAll(send, recv, block, pithInt32, comm, nullptr));
    check("all-to-all", call, recv, block * static_cast<std::size_t>(self.size),
          [&](std::size_t i) { return value(static_cast<int>(i / block), call, own + i % block); });
  }
}

// The root's calls are short, as those that wait for it have made theirs before.
void keep_others_waiting(Rank& self) {
  const Comm comm(self.join());
  const Buffer data(count * 4, false);
  for (int call = 0; call < 2 * calls; ++call) {
    if (self.rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ok(pithBroadcast(data.data(), data.data(), count, pithInt32, 0, comm, nullptr));
  }
}

// Each call in the background, so many at a time.
void sum_in_groups(Rank& self, int at_a_time) {
  const Comm comm(self.join());
  const Buffer data(count * 4 * static_cast<std::size_t>(at_a_time), false);
  for (int call = 0; call < calls; ++call) {
    ok(pithGroupStart());
    for (int i = 0; i < at_a_time; ++i) {
      std::int32_t* const own = data.as<std::int32_t>() + count * static_cast<std::size_t>(i);
      ok(pithAllReduce(own, own, count, pithInt32, pithMax, comm, nullptr));
    }
    ok(pithGroupEnd());
  }
}

// Of a collective, of any size and algorithm; 0: none was timed.
double first_median_s(const std::string& text, const std::string& collective) {
  const std::string name = "\"median_s\": ";
  const std::size_t at = text.find(name, text.find('"' + collective + '"'));
  return at == std::string::npos ? 0 : std::stod(text.substr(at + name.size()));
}

}  // namespace

TEST_CASE("rank 0 learns how long the slowest rank's broadcast takes", "[learning]") {
  const pith::test::TemporaryFolder folder;
  Setup setup;
  setup.transport = "shm";
  setup.environment = {{"PITH_LEARN", "1"}, {"PITH_EXPLAIN_LOG", folder.path()}};
  REQUIRE(run(2, setup, keep_others_waiting) == "");
  CHECK(first_median_s(folder.take(), "broadcast") > 0.5e-3);
}

TEST_CASE("a call in the background is learnt from where it runs alone", "[learning]") {
  const pith::test::TemporaryFolder folder;
  Setup setup;
  setup.environment = {{"PITH_LEARN", "1"}, {"PITH_EXPLAIN_LOG", folder.path()}};
  for (const int at_a_time : {1, 2}) {
    REQUIRE(run(2, setup, [&](Rank& self) { sum_in_groups(self, at_a_time); }) == "");
    CHECK((first_median_s(folder.take(), "allreduce") > 0) == (at_a_time == 1));
  }
}

TEST_CASE("calls that learn are right whatever they try", "[learning]") {
  Setup setup;
  setup.limit_s = 120;
  setup.environment = {{"PITH_LEARN", "1"}, {"PITH_CHUNK", "16384"}};
  for (const char* transport : {"shm", "tcp"}) {
    setup.transport = transport;
    INFO(transport);
    CHECK(run(3, setup, call_often) == "");
  }
}
