// Parameters that change while threads call: blocking calls, groups and splits of one process.
#include <pith/pith.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "api/comm_handle.hpp"
#include "control/control_node.hpp"
#include "tests/catch.hpp"

using namespace pith;

namespace {

constexpr int ranks = 4;
// All ranks come to them after the same round.
constexpr std::uint32_t enough_versions = 100;
constexpr int most_rounds = 300'000;

struct Rank {
  pithComm_t comm = nullptr;
  std::vector<std::uint32_t> versions;  // after each round
  std::uint32_t of_child = 0;           // the version of calls of a child, made at the end
  int wrong = 0;

  EpochGate& gate() const { return comm->communicator->calls().numbers().gate(); }
  std::uint32_t version() const { return comm->communicator->calls().numbers().epoch(); }

  void sum(std::int64_t value, pithComm_t on, std::int64_t& result) {
    wrong += pithAllReduce(&value, &result, 1, pithInt64, pithSum, on, nullptr) != pithSuccess;
  }
  void one_round(int rank, int round) {
    std::array<std::int64_t, 3> results{};
    const bool grouped = round % 5 == 0;
    std::array<std::int64_t, 3> values{};
    if (grouped) pithGroupStart();
    for (std::size_t i = 0; i < (grouped ? 3 : 1); ++i) {
      values[i] = rank + round + static_cast<int>(i);
      wrong += pithAllReduce(&values[i], &results[i], 1, pithInt64, pithSum, comm, nullptr) !=
               pithSuccess;
    }
    if (grouped) wrong += pithGroupEnd() != pithSuccess;
    for (std::size_t i = 0; i < (grouped ? 3 : 1); ++i) {
      wrong += results[i] != ranks * (round + static_cast<int>(i)) + ranks * (ranks - 1) / 2;
    }
    versions.push_back(version());
  }
  void make_child(int rank) {
    pithComm_t child = nullptr;
    wrong += pithCommSplit(comm, 0, rank, &child, nullptr) != pithSuccess;
    if (!child) return;
    std::int64_t result = 0;
    sum(1, child, result);
    wrong += result != ranks;
    of_child = child->communicator->calls().numbers().epoch();
    pithCommDestroy(child);
  }
};

}  // namespace

TEST_CASE("parameters change between the same two calls of all ranks", "[epochs]") {
  std::array<pithComm_t, ranks> comms{};
  REQUIRE(pithCommInitAll(comms.data(), ranks, nullptr) == pithSuccess);
  std::array<Rank, ranks> all;
  std::atomic<bool> ended{false};
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    Rank& rank = all[static_cast<std::size_t>(r)];
    rank.comm = comms[static_cast<std::size_t>(r)];
    threads.emplace_back([&rank, r] {
      for (int round = 0; round < most_rounds && rank.version() < enough_versions; ++round) {
        rank.one_round(r, round);
      }
      rank.make_child(r);
    });
  }
  std::thread proposals([&] {
    std::mt19937_64 random(1);
    const CommIdentity& who = comms[0]->communicator->identity();
    while (!ended) {
      who.control->propose(who.key, "");
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
    }
  });
  for (std::thread& thread : threads) thread.join();
  ended = true;
  proposals.join();

  for (const Rank& rank : all) {
    CHECK(rank.wrong == 0);
    const bool as_rank_0 = rank.versions == all[0].versions;
    CHECK(as_rank_0);
    CHECK(rank.of_child == 0);
    const EpochGate::Counts counts = rank.gate().counts();
    UNSCOPED_INFO("promised " << counts.promised << ", refused " << counts.refused << ", committed "
                              << counts.committed << ", waited " << counts.waited);
  }
  CHECK(all[0].versions.back() >= enough_versions);
  for (const pithComm_t comm : comms) pithCommDestroy(comm);
}
