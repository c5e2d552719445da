// The order in which messages of a pair go where the window has no room for all of them.
#include "collectives/pair_windows.hpp"

#include <cstdint>
#include <vector>

#include "tests/catch.hpp"

using namespace pith;

namespace {

constexpr int peer = 1;
constexpr std::size_t window = 1024;

struct Pair {
  Scheduler scheduler;
  PairWindows windows{2, window};
  std::vector<PairWindows::Waiter> waiters = std::vector<PairWindows::Waiter>(8);

  PairWindows::Waiter& wait(std::size_t which, std::uint32_t number) {
    waiters[which].number = number;
    waiters[which].handle = std::noop_coroutine();
    windows.wait(peer, waiters[which]);
    return waiters[which];
  }
  // Whether somebody was woken.
  bool woke() { return scheduler.run_one(); }
};

}  // namespace

TEST_CASE("a message waits behind an announced one that came before it", "[pairs]") {
  Pair pair;
  CHECK_FALSE(pair.windows.is_behind(peer, 5));
  pair.windows.announced(peer, 5);
  CHECK(pair.windows.is_behind(peer, 6));
  CHECK_FALSE(pair.windows.is_behind(peer, 4));  // its receive is called before that of number 5
  CHECK_FALSE(pair.windows.is_behind(0, 6));
  pair.windows.answered(peer, 5, pair.scheduler);
  CHECK_FALSE(pair.windows.is_behind(peer, 6));
  CHECK_FALSE(pair.woke());
}

TEST_CASE("messages that wait go on in the order of their numbers, one at a time", "[pairs]") {
  Pair pair;
  pair.windows.announced(peer, 1);
  pair.wait(0, 4);
  pair.wait(1, 2);
  pair.wait(2, 3);
  pair.windows.announced(peer, 0);  // called before, begun behind
  pair.windows.answered(peer, 1, pair.scheduler);
  CHECK_FALSE(pair.woke());  // all are behind number 0
  pair.windows.answered(peer, 0, pair.scheduler);
  CHECK(pair.woke());
  CHECK_FALSE(pair.woke());
  CHECK_FALSE(pair.windows.is_behind(peer, 2));
  CHECK(pair.windows.is_behind(peer, 4));
  pair.windows.announced(peer, 2);
  pair.windows.wake_next(peer, pair.scheduler);
  CHECK_FALSE(pair.woke());  // number 3 is behind number 2
  pair.windows.answered(peer, 2, pair.scheduler);
  pair.windows.wake_next(peer, pair.scheduler);
  CHECK(pair.woke());
  CHECK(pair.woke());
  pair.windows.wake_next(peer, pair.scheduler);
  CHECK_FALSE(pair.woke());
}

TEST_CASE("numbers of messages go round", "[pairs]") {
  Pair pair;
  const std::uint32_t last = (std::uint32_t{1} << 31) - 1;
  pair.windows.announced(peer, last);
  CHECK(pair.windows.is_behind(peer, 0));
  CHECK_FALSE(pair.windows.is_behind(peer, last - 1));
}

TEST_CASE("a window has room again once its heads are received", "[pairs]") {
  PairWindows windows(2, window);
  const std::size_t head = windows.head_bytes();
  CHECK(windows.admit(peer, head / 2));
  CHECK_FALSE(windows.admit(peer, head));
  PairWindows receiver(2, window);
  receiver.take(0, head / 2);
  windows.acknowledge(peer, receiver.taken(0));
  windows.acknowledge(peer, 0);  // older news
  CHECK(windows.admit(peer, head));
}
