// Numbers of captured calls: on ranks whose graphs go at different times, and of messages.
#include "streams/captured_numbers.hpp"

#include <deque>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "tests/catch.hpp"

using namespace pith;

namespace {

constexpr std::uint32_t places = 16;

// What a rank's graphs hold, with the numbers of their next replays.
struct Rank {
  CapturedNumbers numbers{places};
  std::map<std::uint64_t, std::uint32_t> held;  // by the capture
};

}  // namespace

TEST_CASE("captured calls have the same numbers on ranks whose graphs go in another order") {
  std::mt19937 random(7);
  std::vector<Rank> ranks(4);
  std::vector<std::uint32_t> firsts;   // of each call, as the first rank has it
  std::vector<std::uint32_t> replays;  // of each call
  std::set<std::uint32_t> used;
  for (std::uint64_t call = 0; call < 500; ++call) {
    replays.push_back(random() % 4);
    for (Rank& rank : ranks) {
      // No call is older than half of all places, and which of the others are gone differs.
      while (!rank.numbers.has_room() || (rank.held.size() > 2 && random() % 2 == 0)) {
        auto gone = rank.held.begin();
        if (rank.numbers.has_room()) std::advance(gone, random() % rank.held.size());
        rank.numbers.give_back(gone->second);
        rank.held.erase(gone);
      }
      std::uint32_t number = rank.numbers.take();
      if (&rank == &ranks[0]) firsts.push_back(number);
      REQUIRE(number == firsts.back());
      for (std::uint32_t i = 0; i < replays.back(); ++i) {
        if (&rank == &ranks[0]) REQUIRE(used.insert(number).second);
        number = CapturedNumbers::next_replay(number);
      }
      rank.held[call] = number;
    }
  }
}

TEST_CASE("a captured call is refused while the one before it at its place is held") {
  CapturedNumbers numbers(places);
  std::deque<std::uint32_t> held;
  for (std::uint32_t i = 0; i < places; ++i) {
    REQUIRE(numbers.has_room());
    held.push_back(numbers.take());
  }
  CHECK(!numbers.has_room());
  // The first half may be kept for ever, and gives nothing when it is gone.
  numbers.give_back(held[0]);
  CHECK(!numbers.has_room());
  // Another one than that whose turn it is.
  numbers.give_back(held[places / 2 + 1]);
  CHECK(!numbers.has_room());
  numbers.give_back(held[places / 2]);
  CHECK(numbers.has_room());
  CHECK(numbers.has_room(2));
  CHECK(!numbers.has_room(3));
  CHECK(numbers.take() == held[places / 2]);
  CHECK(numbers.take() == held[places / 2 + 1]);
  CHECK(!numbers.has_room());
}

TEST_CASE("captured replays at one place are counted on from call to call, and wrap around") {
  CapturedNumbers numbers(2);
  numbers.take();
  const std::uint32_t first = numbers.take();
  std::uint32_t number = first;
  for (std::uint32_t i = 0; i < CapturedNumbers::replays - 1; ++i) {
    number = CapturedNumbers::next_replay(number);
  }
  numbers.give_back(number);
  CHECK(numbers.take() == first + CapturedNumbers::replays - 1);
  CHECK(CapturedNumbers::next_replay(number) == first);
}

TEST_CASE("captured messages are numbered by pairs and directions") {
  CapturedPairs pairs(3, 4);
  std::vector<Message> messages(6);
  for (std::size_t i = 0; i < messages.size(); ++i) {
    messages[i].peer = i % 2 == 0 ? 1 : 2;
    messages[i].sends = i < 3;
  }
  REQUIRE(pairs.has_room(messages));
  pairs.take(messages);
  CHECK(messages[0].number + CapturedNumbers::replays == messages[2].number);
  CHECK(messages[1].number == messages[0].number);  // to another rank
  CHECK(messages[4].number == messages[0].number);  // in the other direction
  CHECK(!pairs.has_room(std::vector<Message>(3, messages[0])));
  CHECK(pairs.has_room(std::vector<Message>(2, messages[0])));
  const std::vector<Message> more(2, messages[0]);
  std::vector<Message> taken = more;
  pairs.take(taken);
  CHECK(!pairs.has_room(std::vector<Message>(1, messages[0])));
  CHECK(pairs.has_room(std::vector<Message>(1, messages[1])));
  pairs.give_back(taken);
  CHECK(pairs.has_room(more));
}

TEST_CASE("messages of a call are in order where their numbers begin anew") {
  CapturedPairs pairs(1);
  std::vector<Message> one(1);
  one[0].peer = 0;
  std::uint32_t before = 0;
  for (std::uint32_t i = 0; i < CapturedNumbers::most + 2; ++i) {
    pairs.take(one);
    if (i > 0) REQUIRE(is_later_message(one[0].number, before));
    if (i > 0) REQUIRE(!is_later_message(before, one[0].number));
    before = one[0].number;
    pairs.give_back(one);
  }
}

TEST_CASE("a message whose number is given once is before those whose numbers come again") {
  CapturedPairs pairs(1);
  std::vector<Message> kept(1);
  std::vector<Message> one(1);
  kept[0].peer = one[0].peer = 0;
  pairs.take(kept);
  for (std::uint32_t i = 1; i < 2 * CapturedNumbers::most; ++i) {
    pairs.take(one);
    if (i >= CapturedNumbers::most / 2) {
      REQUIRE(is_later_message(one[0].number, kept[0].number));
      REQUIRE(!is_later_message(kept[0].number, one[0].number));
    }
    pairs.give_back(one);
  }
}
