// Send and Recv: order, groups, a rank with itself, beside collectives, lengths that differ.
#include <algorithm>
#include <cstring>
#include <deque>

#include "everywhere.hpp"

using namespace ranks;

namespace {

constexpr int types = 14;

// Eight bytes of a message at once, as a hash for each takes longer than sending it.
constexpr std::size_t word_bytes = sizeof(std::uint64_t);
std::uint64_t word_of(int from, int to, int number, std::size_t i) {
  const int name = (from * 64 + to) * 64 + number;
  return mix(i, static_cast<std::uint64_t>(name));
}

// One message with its memory.
struct Message {
  Message(int sender, int receiver, int place, std::size_t length, Rank& self)
      : from(sender),
        to(receiver),
        number(place),
        count(length),
        type(static_cast<pithDataType_t>(place % types)),
        memory(length * size_of(type), (place + self.rank) % 2 == 0,
               place % 3 == 2 ? static_cast<std::size_t>(1 + self.rank) : 0),
        rank(self.rank) {}

  void send(pithComm_t comm, pithStream_t stream = nullptr) {
    for (std::size_t i = 0; i < memory.size(); i += word_bytes) {
      const std::uint64_t word = word_of(from, to, number, i);
      std::memcpy(memory.data() + i, &word, std::min(word_bytes, memory.size() - i));
    }
    ok(pithSend(memory.data(), count, type, to, comm, stream));
  }
  void recv(pithComm_t comm) { ok(pithRecv(memory.data(), count, type, from, comm, nullptr)); }
  // Both ends hold the same afterwards.
  void check() const {
    for (std::size_t i = 0; i < memory.size(); i += word_bytes) {
      const std::uint64_t word = word_of(from, to, number, i);
      const std::size_t bytes = std::min(word_bytes, memory.size() - i);
      if (std::memcmp(memory.data() + i, &word, bytes) == 0) continue;
      ensure(false, "message " + std::to_string(number) + " from " + std::to_string(from) +
                        ": a wrong byte");
    }
  }

  int from;
  int to;
  int number;
  std::size_t count;
  pithDataType_t type;
  Buffer memory;
  int rank;
};

constexpr std::array<std::size_t, 8> counts = {1, 0, 17, 1000, 70'000, 3, 600'000, 5'000};

std::size_t count_of(int number) {
  return counts[static_cast<std::size_t>(number) % counts.size()];
}

// Each rank sends first: without the group all would wait for each other.
void round_the_ring(Rank& self) {
  const Comm comm(self.join());
  const int next = (self.rank + 1) % self.size;
  const int previous = (self.rank + self.size - 1) % self.size;
  for (int number = 0; number < 16; ++number) {
    Message out(self.rank, next, number, count_of(number), self);
    Message in(previous, self.rank, number, count_of(number), self);
    ok(pithGroupStart());
    out.send(comm);
    in.recv(comm);
    ok(pithGroupEnd());
    out.check();
    in.check();
  }
}

// Several messages a pair, itself included, in one group; receives before and after sends.
void everybody_to_everybody(Rank& self) {
  const Comm comm(self.join());
  constexpr int messages = 5;
  for (int turn = 0; turn < 3; ++turn) {
    std::deque<Message> all;
    ok(pithGroupStart());
    for (int number = 0; number < messages; ++number) {
      ok(pithGroupStart());
      for (int peer = 0; peer < self.size; ++peer) {
        const std::size_t count = count_of(number + turn);
        all.emplace_back(self.rank, peer, number, count, self);
        Message& out = all.back();
        all.emplace_back(peer, self.rank, number, count, self);
        Message& in = all.back();
        if ((number + self.rank) % 2 == 0) out.send(comm);
        in.recv(comm);
        if ((number + self.rank) % 2 != 0) out.send(comm);
      }
      ok(pithGroupEnd());
    }
    ok(pithGroupEnd());
    for (const Message& message : all) message.check();
  }
}

// Without groups; ranks that have no part in it may call anything else.
void ping_pong(Rank& self) {
  const Comm comm(self.join());
  std::int64_t sum = 0;
  const std::int64_t one = 1;
  for (int number = 0; number < 16; ++number) {
    if (self.rank < 2) {
      Message there(0, 1, number, count_of(number), self);
      Message back(1, 0, number, count_of(number + 1), self);
      if (self.rank == 0) {
        there.send(comm);
        back.recv(comm);
      } else {
        there.recv(comm);
        back.send(comm);
      }
      there.check();
      back.check();
    }
    if (number % 5 != 4) continue;
    ok(pithAllReduce(&one, &sum, 1, pithInt64, pithSum, comm, nullptr));
    ensure(sum == self.size, "a wrong sum among messages");
  }
}

// Sent before anybody receives, and before a collective: matched in order later.
void ahead_of_time(Rank& self) {
  const Comm comm(self.join());
  constexpr int messages = 20;
  const int last = self.size - 1;
  std::deque<Message> all;
  for (int number = 0; number < messages && (self.rank == 0 || self.rank == last); ++number) {
    all.emplace_back(0, last, number, 11, self);
    if (self.rank == 0) all.back().send(comm);
  }
  ok(pithBarrier(comm, nullptr));
  for (Message& message : all) {
    if (self.rank == last) message.recv(comm);
  }
  for (const Message& message : all) message.check();
  ok(pithBarrier(comm, nullptr));
}

// Short ones, each awaited, behind long ones in the background and behind more short ones than the
// window holds, before any receive.
void behind_a_full_window(Rank& self) {
  const Comm comm(self.join());
  const int last = self.size - 1;
  if (self.rank != 0 && self.rank != last) return;
  constexpr int long_ones = 16;
  std::deque<Message> all;
  for (int number = 0; number < 400; ++number) {
    const std::size_t count = number < long_ones ? 70'000 : 1 + static_cast<std::size_t>(number);
    all.emplace_back(0, last, number, count, self);
  }
  if (self.rank == last) {
    sleep_s(0.01);
    for (Message& message : all) message.recv(comm);
  } else {
    pithRequest_t request = nullptr;
    ok(pithGroupStart());
    for (int number = 0; number < long_ones; ++number) all[std::size_t(number)].send(comm);
    ok(pithGroupEndAsync(&request));
    for (std::size_t i = long_ones; i < all.size(); ++i) all[i].send(comm);
    ok(pithWait(request));
  }
  for (const Message& message : all) message.check();
}

// Collectives and messages in one group, in another order on every rank.
void beside_collectives(Rank& self) {
  const Comm comm(self.join());
  const int next = (self.rank + 1) % self.size;
  const int previous = (self.rank + self.size - 1) % self.size;
  for (int number = 0; number < 8; ++number) {
    Message out(self.rank, next, number, count_of(number), self);
    Message in(previous, self.rank, number, count_of(number), self);
    std::vector<std::int64_t> values(1000 * static_cast<std::size_t>(number) + 1, 2);
    ok(pithGroupStart());
    if (self.rank % 3 == 0) out.send(comm);
    if (self.rank % 3 == 1) in.recv(comm);
    for (int i = 0; i < 6; ++i) {
      ok(pithAllReduce(values.data(), values.data(), 1, pithInt64, pithMax, comm, nullptr));
    }
    if (self.rank % 3 != 0) out.send(comm);
    if (self.rank % 3 != 1) in.recv(comm);
    ok(pithAllReduce(values.data() + 1, values.data() + 1, values.size() - 1, pithInt64, pithSum,
                     comm, nullptr));
    ok(pithGroupEnd());
    in.check();
    ensure(values.back() == (values.size() > 1 ? 2 * self.size : 2), "a wrong sum");
  }
}

// More receives in flight than calls may run at once, and messages that come in another order.
void in_the_background(Rank& self) {
  const Comm comm(self.join());
  const int next = (self.rank + 1) % self.size;
  const int previous = (self.rank + self.size - 1) % self.size;
  constexpr int messages = 12;
  std::deque<Message> all;
  std::vector<pithRequest_t> requests(messages, nullptr);
  for (int number = 0; number < messages; ++number) {
    all.emplace_back(previous, self.rank, number, count_of(number), self);
    ok(pithGroupStart());
    all.back().recv(comm);
    ok(pithGroupEndAsync(&requests[static_cast<std::size_t>(number)]));
  }
  std::int64_t one = 1;
  ok(pithAllReduce(&one, &one, 1, pithInt64, pithSum, comm, nullptr));
  ensure(one == self.size, "a wrong sum");
  for (int number = 0; number < messages; ++number) {
    Message out(self.rank, next, number, count_of(number), self);
    out.send(comm);
  }
  for (const pithRequest_t request : requests) ok(pithWait(request));
  for (const Message& message : all) message.check();
}

// All ranks have them in common; threads make no communicator out of nothing.
void several_communicators(Rank& self, Way way) {
  constexpr int comms = 3;
  std::vector<pithComm_t> made(comms, nullptr);
  made[0] = self.join();
  for (std::size_t c = 1; c < comms; ++c) {
    ok(way == Way::all
           ? pithCommSplit(made[0], 0, 0, &made[c], nullptr)
           : pithCommInitRank(&made[c], self.size, self.id(static_cast<int>(c)), self.rank));
  }
  const int next = (self.rank + 1) % self.size;
  const int previous = (self.rank + self.size - 1) % self.size;
  std::deque<Message> all;
  ok(pithGroupStart());
  for (int i = 0; i < comms; ++i) {
    const int c = (i + self.rank) % comms;
    all.emplace_back(self.rank, next, c, 200'000, self).send(made[static_cast<std::size_t>(c)]);
    all.emplace_back(previous, self.rank, c, 200'000, self).recv(made[static_cast<std::size_t>(c)]);
  }
  ok(pithGroupEnd());
  for (const Message& message : all) message.check();
  for (const pithComm_t comm : made) ok(pithCommDestroy(comm));
}

// One thread is all ranks.
void one_thread(Rank&) {
  for (const int size : {1, 2, 4}) {
    std::vector<pithComm_t> comms(static_cast<std::size_t>(size), nullptr);
    ok(pithCommInitAll(comms.data(), size, nullptr));
    for (const std::size_t count : {1u, 1000u, 300'000u}) {
      std::vector<std::vector<int>> send(comms.size());
      std::vector<std::vector<int>> recv(comms.size(), std::vector<int>(count, -1));
      ok(pithGroupStart());
      for (int r = 0; r < size; ++r) {
        const auto at = static_cast<std::size_t>(r);
        send[at].assign(count, r);
        ok(pithSend(send[at].data(), count, pithInt32, (r + 1) % size, comms[at], nullptr));
        ok(pithRecv(recv[at].data(), count, pithInt32, (r + size - 1) % size, comms[at], nullptr));
      }
      ok(pithGroupEnd());
      for (int r = 0; r < size; ++r) {
        ensure(recv[static_cast<std::size_t>(r)] == std::vector<int>(count, (r + size - 1) % size),
               "wrong values");
      }
    }
    for (const pithComm_t comm : comms) ok(pithCommDestroy(comm));
  }
}

// Lengths or types that differ are named, on the receiver at least.
void wrong_lengths(Rank& self, std::size_t sent, pithDataType_t sent_type, std::size_t expected,
                   bool early) {
  const Comm comm(self.join());
  ok(pithBarrier(comm, nullptr));
  self.meet();  // or a rank that is still in the barrier hears of the mismatch there
  const std::vector<char> send(sent * 8);
  std::vector<char> recv(expected * 8);
  if (self.rank == 0) {
    if (!early) sleep_s(0.1);
    // A long one waits for its receiver, and hears of it.
    const pithResult_t result = pithSend(send.data(), sent, sent_type, 1, comm, nullptr);
    ensure(result == pithSuccess || result == pithInvalidUsage || result == pithRemoteError,
           "an odd result of the sender");
  }
  if (self.rank == 1) {
    if (early) sleep_s(0.1);
    fails(
        pithRecv(recv.data(), expected, pithInt32, 0, comm, nullptr), pithInvalidUsage,
        {"rank 0 sent " + std::to_string(sent), "where " + std::to_string(expected), "type int32"});
  }
  const pithResult_t after = pithBarrier(comm, nullptr);
  ensure(after == pithInvalidUsage || after == pithRemoteError, "not revoked");
  self.meet();
}

void misuse(Rank& self) {
  const Comm comm(self.join());
  constexpr auto bad = pithInvalidArgument;
  const int peer = (self.rank + 1) % self.size;
  int value = 0;
  fails(pithSend(&value, 1, pithInt32, self.size, comm, nullptr), bad,
        {"pithSend", "peer is " + std::to_string(self.size), "expected 0 to"});
  fails(pithRecv(&value, 1, pithInt32, -1, comm, nullptr), bad, {"pithRecv", "peer is -1"});
  fails(pithSend(nullptr, 1, pithInt32, peer, comm, nullptr), bad, {"send is NULL"});
  fails(pithRecv(nullptr, 1, pithInt32, peer, comm, nullptr), bad, {"recv is NULL"});
  fails(pithSend(&value, 1, pithInt32, peer, nullptr, nullptr), bad, {"comm is NULL"});
  fails(pithSend(&value, static_cast<std::size_t>(-1), pithInt32, peer, comm, nullptr), bad,
        {"count is"});
  const auto wild = static_cast<pithDataType_t>(wild_types.back());
  fails(pithSend(&value, 1, wild, peer, comm, nullptr), bad, {"type is"});

  // To itself, alone.
  fails(pithSend(&value, 1, pithInt32, self.rank, comm, nullptr), pithInvalidUsage,
        {"itself", "pithRecv", "same group"});
  ok(pithGroupStart());
  ok(pithRecv(&value, 1, pithInt32, self.rank, comm, nullptr));
  fails(pithGroupEnd(), pithInvalidUsage, {"itself", "pithSend"});
  ok(pithGroupStart());
  ok(pithSend(&value, 1, pithInt32, self.rank, comm, nullptr));
  ok(pithRecv(&value, 2, pithInt64, self.rank, comm, nullptr));
  fails(pithGroupEnd(), pithInvalidUsage, {"1 elements of type int32", "2 of type"});

  // Nothing was sent: all goes on.
  const int mine = 7 + self.rank;
  ok(pithGroupStart());
  ok(pithSend(&mine, 1, pithInt32, peer, comm, nullptr));
  ok(pithRecv(&value, 1, pithInt32, (self.rank + self.size - 1) % self.size, comm, nullptr));
  ok(pithGroupEnd());
  ensure(value == 7 + (self.rank + self.size - 1) % self.size, "a wrong value");
}

void everywhere(int least, const Body& body) { ranks::everywhere(least, 4, body); }

}  // namespace

TEST_CASE("messages round the ring", "[messages]") { everywhere(1, round_the_ring); }
TEST_CASE("messages from everybody to everybody", "[messages]") {
  everywhere(1, everybody_to_everybody);
}
TEST_CASE("messages without a group", "[messages]") { everywhere(2, ping_pong); }
TEST_CASE("messages that nobody waits for yet", "[messages]") { everywhere(2, ahead_of_time); }
TEST_CASE("messages behind a full window", "[messages]") { everywhere(2, behind_a_full_window); }
TEST_CASE("messages beside collectives", "[messages]") { everywhere(2, beside_collectives); }
TEST_CASE("messages in the background", "[messages]") { everywhere(2, in_the_background); }
TEST_CASE("one thread sends and receives for all ranks", "[messages]") {
  Setup setup;
  setup.way = Way::alone;
  CHECK(run(1, setup, one_thread) == "");
}
TEST_CASE("messages over several communicators", "[messages]") {
  for (const Setup& setup : every_link()) {
    INFO(name_of(setup));
    CHECK(run(3, setup, [&](Rank& self) { several_communicators(self, setup.way); }) == "");
  }
}
TEST_CASE("misuse of messages", "[messages][misuse]") { everywhere(2, misuse); }

TEST_CASE("messages whose ends differ", "[messages][misuse]") {
  struct Case {
    std::size_t sent;
    pithDataType_t type;
    std::size_t expected;
  };
  for (const Case& c :
       {Case{12, pithInt32, 10}, Case{10, pithInt32, 12}, Case{700'000, pithInt32, 10},
        Case{10, pithInt32, 700'000}, Case{10, pithFloat32, 10}, Case{1, pithInt32, 0}}) {
    for (const bool early : {true, false}) {
      for (const Setup& setup : every_link()) {
        INFO(name_of(setup) << ": " << c.sent << " for " << c.expected);
        const auto body = [&](Rank& self) {
          wrong_lengths(self, c.sent, c.type, c.expected, early);
        };
        CHECK(run(3, setup, body) == "");
      }
    }
  }
}

TEST_CASE("messages between threads", "[messages][threads]") {
  for (const char* transport : {"local", "shm", "tcp"}) {
    Setup setup;
    setup.way = Way::all;
    setup.transport = transport;
    INFO(name_of(setup));
    CHECK(run(3, setup, everybody_to_everybody) == "");
    CHECK(run(3, setup, in_the_background) == "");
  }
}
