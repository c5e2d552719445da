// Many ranks, communicators and streams on one device, and several threads that use them at once.
#include "tests/cuda/stream_world.hpp"

using namespace pith::cuda;
using namespace pith::cuda::test;

namespace {

// Both streams of every rank; nobody waits.
bool issue(const World& world, unsigned round) {
  bool accepted = true;
  for (std::size_t r = 0; r < world.ranks.size(); ++r) {
    const Rank& rank = *world.ranks[r];
    fill(rank.send, r, round);
    fill(rank.other_send, r, round + 1);
    accepted &= allreduce(rank, rank.send, rank.recv, rank.stream) == pithSuccess;
    accepted &= allreduce(rank, rank.other_send, rank.other_recv, rank.other) == pithSuccess;
  }
  return accepted;
}

bool is_right(const World& world, unsigned round) {
  bool right = true;
  for (const auto& rank : world.ranks) {
    right &= holds_sum(rank->recv, world.ranks.size(), round);
    right &= holds_sum(rank->other_recv, world.ranks.size(), round + 1);
  }
  return right;
}

}  // namespace

TEST_CASE("eight ranks, and eight communicators besides, share a device") {
  const test::Device device;
  std::vector<std::unique_ptr<World>> worlds;
  worlds.push_back(std::make_unique<World>(8));
  for (int i = 0; i < 8; ++i) worlds.push_back(std::make_unique<World>(2));
  Words hold(1);
  for (unsigned round = 1; round <= 3; ++round) {
    // The first ranks' streams come last: every other stream waits inside its call.
    for (const auto& world : worlds) {
      OK(cu().wait_value64(world->ranks[0]->stream, hold.at(0), round, kWaitValueGeq));
    }
    for (const auto& world : worlds) REQUIRE(issue(*world, round));
    hold[0].store(round, std::memory_order_release);
    for (const auto& world : worlds) world->finish();
    for (const auto& world : worlds) REQUIRE(is_right(*world, round));
  }
}

TEST_CASE("threads enqueue at once on communicators of their own") {
  const test::Device device;
  constexpr std::size_t threads = 4;
  constexpr unsigned rounds = 25;
  std::vector<std::unique_ptr<World>> worlds;
  for (std::size_t t = 0; t < threads; ++t) worlds.push_back(std::make_unique<World>(2));
  std::vector<unsigned> right(threads, 0);
  std::vector<std::thread> running;
  for (std::size_t t = 0; t < threads; ++t) {
    running.emplace_back([&, t] {
      const World& world = *worlds[t];
      const unsigned first = 100 * static_cast<unsigned>(t);
      for (unsigned round = first; round < first + rounds; ++round) {
        if (!issue(world, round)) return;
        // No macros of the test framework: they are for one thread.
        for (std::size_t r = 0; r < 2; ++r) {
          const Rank& rank = *world.ranks[r];
          if (cu().stream_synchronize(rank.stream) != kSuccess) return;
          if (cu().stream_synchronize(rank.other) != kSuccess) return;
        }
        if (is_right(world, round)) ++right[t];
      }
    });
  }
  for (std::thread& thread : running) thread.join();
  CHECK(right == std::vector<unsigned>(threads, rounds));
}
