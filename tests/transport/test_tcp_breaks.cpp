// Connections that break at a moment of the test's choice, opposite a rank that it plays.
#include <poll.h>
#include <sys/socket.h>

#include "catch.hpp"
#include "tests/transport/played_tcp_rank.hpp"
#include "transport/tcp/tcp_reconnect.hpp"

namespace pith::test {
namespace {

Task<Error> send_one(TcpRank& me, std::uint32_t step, std::span<const std::byte> data) {
  co_return co_await SendTo(me, me.comm, 1, step, data);
}

Task<Error> recv_one(TcpRank& me, std::uint32_t step, std::span<std::byte> into) {
  co_return co_await RecvFrom(me, me.comm, 1, step, into);
}

void begin(Task<Error>& task) { task.handle().resume(); }

bool drive_until_done(TcpRank& me, Task<Error>& task) {
  const std::uint64_t until = monotonic_ns() + 5 * second;
  while (!task.done() && monotonic_ns() < until) me.turn();
  return task.done();
}

// The message of this step, whole.
void whole(PlayedTcpRank& one, std::uint32_t step, std::span<const std::byte> data) {
  one.message(0, FrameType::message, step, data, 0, data.size());
}

// How often the rank finds something to do in 200 ms.
int turns_awake(TcpRank& me) {
  int awake = 0;
  const std::uint64_t until = monotonic_ns() + second / 5;
  while (monotonic_ns() < until) {
    if (me.transport->progress() || !me.transport->arm()) {
      ++awake;
      continue;
    }
    pollfd entry{me.transport->descriptor(), POLLIN, 0};
    if (::poll(&entry, 1, 20) > 0) ++awake;
  }
  return awake;
}

// As the message with step 0.
void check_that_arrives(PlayedTcpRank& one, const std::vector<std::byte>& sent) {
  std::vector<std::byte> into(sent.size());
  Task<Error> receiving = recv_one(one.zero, 0, into);
  begin(receiving);
  REQUIRE(drive_until_done(one.zero, receiving));
  CHECK(!receiving.result());
  CHECK(same(into, sent));
}

// Rank 0 has all streams, rank 1 has not heard so of the last one, and begins it once more.
TEST_CASE("tcp: a break while a pair is opened is none that only one end knows of", "[reconnect]") {
  PlayedTcpRank one(2);
  REQUIRE(one.is_connected());
  const bool is_seen = GENERATE(false, true);
  one.socket_of(1).reset();
  const auto turn = [&] { one.zero.turn(); };
  for (int i = 0; is_seen && i < 5; ++i) turn();
  REQUIRE(one.enter(1, turn));
  for (int i = 0; i < 5; ++i) turn();
  for (const int stream : {0, 1}) {
    CHECK(one.hear_greeting(stream) == 0);
    one.greet(stream, 0);
  }
  const std::vector<std::byte> sent = pattern(1, 0, 1000);
  one.message(0, FrameType::large, 0, sent, 0, 400);
  one.message(1, FrameType::piece, 0, sent, 400, 600);
  check_that_arrives(one, sent);
}

// The end is found by a send, while no more messages are taken.
TEST_CASE("tcp: what a peer says before it leaves is heard, whoever finds the end", "[reconnect]") {
  const bool says_goodbye = GENERATE(true, false);
  PlayedTcpRank one(1);
  REQUIRE(one.is_connected());
  std::string why;
  one.zero.transport->on_peer_lost = [&](int, const Error& error) { why = error.message(); };
  CHECK(one.hear_greeting(0) == 0);
  const std::vector<std::byte> sent = pattern(1, 0, 10'000);
  one.greet(0, 0);
  one.zero.mailbox.backlog_limit = 0;
  for (const std::uint32_t step : {0u, 1u}) {
    whole(one, step, sent);
    for (int i = 0; i < 30; ++i) one.zero.turn();
    CHECK_FALSE(one.zero.mailbox.accepts(1));
  }
  if (says_goodbye) one.goodbye(0);
  one.stop_listening();
  one.socket_of(0).reset();
  const std::vector<std::byte> vain(100);
  for (std::uint32_t step = 0; step < 2; ++step) {
    Task<Error> sending = send_one(one.zero, step, vain);
    begin(sending);
    drive_until_done(one.zero, sending);
  }
  std::vector<std::byte> into(sent.size());
  for (const std::uint32_t step : {0u, 1u}) {
    Task<Error> receiving = recv_one(one.zero, step, into);
    begin(receiving);
    REQUIRE(drive_until_done(one.zero, receiving));
    CHECK(!receiving.result());
    CHECK(same(into, sent));
  }
  Task<Error> more = recv_one(one.zero, 2, into);
  begin(more);
  for (int i = 0; i < 100 && why.empty(); ++i) one.zero.turn();
  CHECK((why.find("has left") != std::string::npos) == says_goodbye);
  CHECK(why != "");
  one.zero.mailbox.quiesce(one.zero.comm, Error(Code::remote, "over"));
  CHECK(drive_until_done(one.zero, more));
}

TEST_CASE("tcp: a rank that never sleeps accepts another connection", "[reconnect]") {
  PlayedTcpRank one(1);
  REQUIRE(one.is_connected());
  CHECK(one.hear_greeting(0) == 0);
  one.greet(0, 0);
  for (int i = 0; i < 10; ++i) one.zero.transport->progress();
  const Descriptor old = std::move(one.socket_of(0));  // so rank 0 does not know that it is broken
  CHECK(one.enter(0, [&] { one.zero.transport->progress(); }));
}

// Both directions are full.
TEST_CASE("tcp: a stream that waits for room after a break lets its rank sleep", "[reconnect]") {
  PlayedTcpRank one(1);
  REQUIRE(one.is_connected());
  CHECK(one.hear_greeting(0) == 0);
  one.greet(0, 0);
  const std::vector<std::byte> much(std::size_t{8} << 20);
  Task<Error> sending = send_one(one.zero, 0, much);
  begin(sending);
  for (int i = 0; i < 30; ++i) one.zero.transport->progress();
  CHECK_FALSE(sending.done());
  one.zero.mailbox.backlog_limit = 0;  // after one message no more is taken
  const std::vector<std::byte> stored(100);
  for (std::uint32_t step = 0; step < 2; ++step) whole(one, step, stored);
  for (int i = 0; i < 30; ++i) one.zero.transport->progress();
  CHECK_FALSE(one.zero.mailbox.accepts(1));
  // The next connection has little room, as it inherits that.
  const int little = 4096;
  for (int fd = 3; fd < 1024; ++fd) {
    int listens = 0;
    socklen_t size = sizeof listens;
    ::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size);
    if (listens == 0 || own_port(fd) != one.port()) continue;
    ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &little, sizeof little);
  }
  ::shutdown(one.socket_of(0).get(), SHUT_RDWR);
  const std::size_t has = one.hear(0, much.size()).size();
  REQUIRE(one.enter(0, [&] { one.zero.turn(); }));
  const std::uint64_t heard = one.hear_greeting(0);
  REQUIRE(heard != PlayedTcpRank::no_greeting);
  one.greet(0, has);
  one.message(0, FrameType::message, 2, stored, 0, stored.size());
  for (int i = 0; i < 30; ++i) one.zero.turn();
  CHECK(turns_awake(one.zero) < 100);
  const std::size_t all = sizeof(MessageOpening) + much.size();
  std::size_t rest = 0;
  const int enough = 1 << 20;
  for (const int fd : sockets_at(one.port())) {
    ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &enough, sizeof enough);
  }
  const std::uint64_t until = monotonic_ns() + 20 * second;
  while (has + rest < all && monotonic_ns() < until) {
    one.zero.turn();
    char bytes[65536];
    const ssize_t got = ::recv(one.socket_of(0).get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (got > 0) rest += static_cast<std::size_t>(got);
  }
  CHECK(sending.done());
  CHECK(has + rest == all);
  CHECK(heard <= 3 * (sizeof(MessageOpening) + stored.size()));
}

// The piece comes before its announcement, and then its connection is reset.
TEST_CASE("tcp: a stream that breaks while it waits for another is opened again", "[reconnect]") {
  PlayedTcpRank one(2);
  REQUIRE(one.is_connected());
  for (const int stream : {0, 1}) {
    CHECK(one.hear_greeting(stream) == 0);
    one.greet(stream, 0);
  }
  for (int i = 0; i < 30; ++i) one.zero.turn();
  const std::vector<std::byte> sent = pattern(1, 0, 1000);
  one.message(1, FrameType::piece, 0, sent, 400, 600);
  const linger at_once{1, 0};
  ::setsockopt(one.socket_of(1).get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  one.socket_of(1).reset();
  for (int i = 0; i < 30; ++i) one.zero.turn();
  CHECK(turns_awake(one.zero) < 100);
  REQUIRE(one.enter(1, [&] { one.zero.turn(); }));
  CHECK(one.hear_greeting(1) == sizeof(Frame) + 600);
  one.greet(1, 0);
  one.message(0, FrameType::large, 0, sent, 0, 400);
  check_that_arrives(one, sent);
}

// Rank 0 has written all, and knows of no break.
TEST_CASE("tcp: who leaves waits until the others have everything", "[reconnect]") {
  PlayedTcpRank one(1);
  REQUIRE(one.is_connected());
  CHECK(one.hear_greeting(0) == 0);
  one.greet(0, 0);
  for (int i = 0; i < 30; ++i) one.zero.turn();
  constexpr std::uint32_t messages = 12;
  const std::vector<std::byte> part(20'000);
  const int little = 4096;
  ::setsockopt(one.socket_of(0).get(), SOL_SOCKET, SO_RCVBUF, &little, sizeof little);
  for (std::uint32_t step = 0; step < messages; ++step) {
    Task<Error> sending = send_one(one.zero, step, part);
    begin(sending);
    REQUIRE(drive_until_done(one.zero, sending));
  }
  std::thread closing([&] { one.zero.transport->close(monotonic_ns() + 5 * second); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ::shutdown(one.socket_of(0).get(), SHUT_RDWR);
  const std::size_t all = messages * (sizeof(MessageOpening) + part.size());
  const std::size_t has = one.hear(0, all).size();
  CHECK(has < all);
  const bool is_back = one.enter(0, [] {});
  CHECK(is_back);
  std::size_t rest = 0;
  if (is_back) {
    CHECK(one.hear_greeting(0) == 0);
    one.greet(0, has);
    rest = one.hear(0, all).size();
  }
  closing.join();
  CHECK(has + rest == all + sizeof(Frame));  // a goodbye is the last
}

}  // namespace
}  // namespace pith::test
