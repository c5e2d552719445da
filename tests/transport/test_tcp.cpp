// TcpTransport between threads over the loopback: contents, flow control, aborts, losses.
#include <atomic>

#include "catch.hpp"
#include "tests/transport/tcp_ranks.hpp"
#include "transport/tcp/tcp_address.hpp"
#include "transport/tcp/tcp_round_trip.hpp"
#include "transport/two_ranks.hpp"

namespace pith::test {
namespace {

const std::vector<std::size_t> sizes{0,      1,      64,      4048,           4096,    65488,
                                     65'536, 70'001, 262'143, (1u << 18) + 1, 1 << 20, 8 << 20};

Task<Error> send_one(TcpRank& me, CommState& comm, int to, std::uint32_t step, std::size_t bytes) {
  const std::vector<std::byte> data = pattern(me.rank, step, bytes);
  co_return co_await SendTo(me, comm, to, step, data);
}

Task<Error> recv_one(TcpRank& me, CommState& comm, int from, std::uint32_t step,
                     std::size_t bytes) {
  std::vector<std::byte> into(bytes);
  if (Error error = co_await RecvFrom(me, comm, from, step, into)) co_return error;
  if (!same(into, pattern(from, step, bytes))) co_return Error(Code::internal, "wrong contents");
  co_return Error();
}

Task<Error> borrow_one(TcpRank& me, CommState& comm, int from, std::uint32_t step,
                       std::size_t bytes) {
  Lease lease;
  std::span<std::byte> room(static_cast<std::byte*>(nullptr), bytes);
  if (Error error = co_await RecvFrom(me, comm, from, step, room, &lease)) co_return error;
  const std::vector<std::byte> expected = pattern(from, step, bytes);
  const bool whole = same({lease.data(), lease.size()}, expected);
  co_return whole ? Error() : Error(Code::internal, "wrong contents");
}

std::string outcome(TcpRank& me, std::vector<Task<Error>>& tasks) {
  if (!me.drive(tasks)) return "the ranks hang";
  for (Task<Error>& task : tasks) {
    if (task.result()) return task.result().message();
  }
  return {};
}

// All must leave together, or the early ones look lost to the others.
std::string leave(TcpRank& me, std::barrier<>& barrier, std::string complaint) {
  barrier.arrive_and_wait();
  me.transport->close(monotonic_ns() + second);
  return complaint;
}

std::string exchange_all(TcpRank& me, std::barrier<>& barrier, int count,
                         std::size_t longest = sizes.back()) {
  std::vector<Task<Error>> tasks;
  for (int peer = 0; peer < count; ++peer) {
    if (peer == me.rank) continue;
    for (std::uint32_t step = 0; step < sizes.size() && sizes[step] <= longest; ++step) {
      tasks.push_back(send_one(me, me.comm, peer, step, sizes[step]));
      if (step % 2 == 0) {
        tasks.push_back(recv_one(me, me.comm, peer, step, sizes[step]));
      } else {
        tasks.push_back(borrow_one(me, me.comm, peer, step, sizes[step]));
      }
    }
  }
  return leave(me, barrier, outcome(me, tasks));
}

TEST_CASE("tcp: rails are taken in turn, as many as both ranks have") {
  CHECK(address_with_rails("0.0.0.0:50", "10.0.0.1", std::vector<std::string>{}) == "0.0.0.0:50");
  const std::vector<std::string> others{"10.1.0.1", "fd00::1"};
  const std::string text = address_with_rails("0.0.0.0:50", "10.0.0.1", others);
  CHECK(text == "10.0.0.1:50|10.1.0.1:50|[fd00::1]:50");
  CHECK(rail_of(text, 0, 3) == "10.0.0.1:50");
  CHECK(rail_of(text, 1, 3) == "10.1.0.1:50");
  CHECK(rail_of(text, 5, 3) == "[fd00::1]:50");
  CHECK(rail_of(text, 3, 2) == "10.1.0.1:50");
  CHECK(rail_of(text, 7, 1) == "10.0.0.1:50");
  CHECK(rail_of("10.0.0.1:50", 3, 4) == "10.0.0.1:50");
  CHECK(listening_host("10.0.0.1", {}) == "10.0.0.1");
  CHECK(listening_host("10.0.0.1", others) == "0.0.0.0");
  CHECK(listening_host("fd00::2", others) == "::");
}

TEST_CASE("tcp: every size over two addresses of a host") {
  TcpOptions options;
  options.rails = {"127.0.0.2"};
  const auto body = [](TcpRank& me, std::barrier<>& all) { return exchange_all(me, all, 3); };
  CHECK(run_tcp_ranks(3, body, options) == "");
}

TcpOptions maybe_encrypted() {
  TcpOptions options;
  options.encrypt = GENERATE(false, true);
  return options;
}

TEST_CASE("tcp: every size between all ranks") {
  const int count = GENERATE(2, 3, 6);
  const bool on_one_host = count != 3;
  const auto body = [&](TcpRank& me, std::barrier<>& all) { return exchange_all(me, all, count); };
  REQUIRE(run_tcp_ranks(count, body, maybe_encrypted(), on_one_host) == "");
}

// Only neighbours are connected at first.
TcpOptions on_demand() {
  TcpOptions options = maybe_encrypted();
  options.streams.on_demand = true;
  options.streams.later = 2;
  return options;
}

TEST_CASE("tcp: pairs that connect when the first message wants it", "[demand]") {
  const int count = GENERATE(6, 11);
  const std::string complaint = run_tcp_ranks(
      count,
      [&](TcpRank& me, std::barrier<>& all) { return exchange_all(me, all, count, 1 << 20); },
      on_demand());
  REQUIRE(complaint == "");
}

// Whether the higher or the lower rank is the one that sends. The other one does not wait for it
// before it has heard something, so it does not connect by itself.
TEST_CASE("tcp: one message between ranks that are not connected", "[demand]") {
  const bool up = GENERATE(true, false);
  const std::size_t bytes = GENERATE(std::size_t{0}, std::size_t{100}, std::size_t{3} << 20);
  const int sender = up ? 1 : 6;
  const std::string complaint = run_tcp_ranks(
      8,
      [&](TcpRank& me, std::barrier<>& all) -> std::string {
        std::vector<Task<Error>> tasks;
        if (me.rank == sender) tasks.push_back(send_one(me, me.comm, 7 - sender, 0, bytes));
        if (me.rank == 7 - sender) {
          const std::uint64_t until = monotonic_ns() + 20 * second;
          while (me.transport->heard_from(sender) == 0 && monotonic_ns() < until) me.turn();
          if (me.transport->heard_from(sender) == 0) return "nothing has come";
          tasks.push_back(recv_one(me, me.comm, sender, 0, bytes));
        }
        return leave(me, all, outcome(me, tasks));
      },
      on_demand());
  REQUIRE(complaint == "");
}

TEST_CASE("tcp: a peer that has left before anyone connected to it is lost", "[demand]") {
  const bool sends = GENERATE(true, false);
  const bool up = GENERATE(true, false);
  const int stays = up ? 1 : 6;
  const std::string complaint = run_tcp_ranks(
      8,
      [&](TcpRank& me, std::barrier<>& all) -> std::string {
        if (me.rank == 7 - stays) me.transport->close(monotonic_ns() + second);
        all.arrive_and_wait();
        std::string wrong;
        if (me.rank == stays) {
          int lost = -1;
          me.transport->on_peer_lost = [&](int peer, const Error& error) {
            lost = peer;
            me.comm.revoked = error;
            me.mailbox.quiesce(me.comm, error);
          };
          std::vector<Task<Error>> tasks;
          if (sends) tasks.push_back(send_one(me, me.comm, 7 - me.rank, 0, 100));
          if (!sends) tasks.push_back(recv_one(me, me.comm, 7 - me.rank, 0, 100));
          if (!me.drive(tasks)) wrong = "a peer that has left is waited for";
          // A send tells its caller, as it does where a peer that was connected has left.
          if (wrong.empty() && tasks[0].result().rank() != 7 - me.rank) wrong = "no error";
          if (wrong.empty() && !sends && lost != 7 - me.rank) wrong = "no loss";
        }
        return leave(me, all, wrong);
      },
      on_demand());
  REQUIRE(complaint == "");
}

TEST_CASE("tcp: an abort before the peer is connected, and what follows", "[demand]") {
  const std::string complaint = run_tcp_ranks(
      8,
      [&](TcpRank& me, std::barrier<>& all) -> std::string {
        std::vector<Task<Error>> tasks;
        CommState other;
        other.id = 8;
        std::string wrong;
        if (me.rank == 1) {
          tasks.push_back(send_one(me, other, 6, 0, 3 << 20));
          tasks[0].handle().resume();
          const Error aborted(Code::remote, "aborted");
          other.revoked = aborted;
          me.transport->quiesce(other, aborted);
          while (!tasks[0].done()) me.turn();
          if (!tasks[0].result()) wrong = "an aborted send has succeeded";
          tasks.clear();
          tasks.push_back(send_one(me, me.comm, 6, 0, 1000));
        }
        if (me.rank == 6) tasks.push_back(recv_one(me, me.comm, 1, 0, 1000));
        const std::string more = outcome(me, tasks);
        return leave(me, all, wrong.empty() ? more : wrong);
      },
      on_demand());
  REQUIRE(complaint == "");
}

// The kernel knows it from the handshake on.
TEST_CASE("tcp: the round trip to the farthest peer") {
  std::array<double, 3> seconds{};
  const std::string complaint =
      run_tcp_ranks(3, [&](TcpRank& me, std::barrier<>& all) -> std::string {
        seconds[static_cast<std::size_t>(me.rank)] = me.transport->round_trip_s();
        std::vector<Task<Error>> none;
        return leave(me, all, outcome(me, none));
      });
  REQUIRE(complaint == "");
  for (const double one : seconds) {
    CHECK(one > 0);
    CHECK(one < 0.5);
  }
  CHECK(round_trip_of(-1) == 0);
}

TEST_CASE("tcp: one stream, and pieces that fit nothing") {
  TcpOptions options = maybe_encrypted();
  options.streams.at_start = GENERATE(1, 3);
  options.cut_bytes = 1000;
  options.piece_bytes = 777;
  options.read_bytes = 100;
  const bool on_one_host = GENERATE(true, false);
  const auto body = [](TcpRank& me, std::barrier<>& all) { return exchange_all(me, all, 2); };
  REQUIRE(run_tcp_ranks(2, body, options, on_one_host) == "");
}

TEST_CASE("tcp: messages that nobody waits for yet, received in another order") {
  const auto body = [](TcpRank& me, std::barrier<>& all) {
    std::vector<Task<Error>> tasks;
    for (std::uint32_t i = 0; i < 300; ++i) {
      const std::uint32_t step = me.rank == 0 ? i : 299 - i;
      const std::size_t bytes = step * 37 + (step % 50 == 7 ? 300'000 : 0);
      tasks.push_back(me.rank == 0 ? send_one(me, me.comm, 1, step, bytes)
                                   : recv_one(me, me.comm, 0, step, bytes));
    }
    return leave(me, all, outcome(me, tasks));
  };
  REQUIRE(run_tcp_ranks(2, body, maybe_encrypted()) == "");
}

Task<Error> send_stream(TcpRank& me, int messages, std::size_t bytes, int& sent) {
  const std::vector<std::byte> data = pattern(me.rank, 0, bytes);
  for (sent = 0; sent < messages; ++sent) {
    if (Error error = co_await SendTo(me, me.comm, 1, 0, data)) co_return error;
  }
  co_return Error();
}

Task<Error> recv_stream(TcpRank& me, int messages, std::size_t bytes) {
  std::vector<std::byte> into(bytes);
  const std::vector<std::byte> expected = pattern(0, 0, bytes);
  for (int i = 0; i < messages; ++i) {
    if (Error error = co_await RecvFrom(me, me.comm, 0, 0, into)) co_return error;
    if (!same(into, expected)) co_return Error(Code::internal, "wrong contents");
  }
  co_return Error();
}

TEST_CASE("tcp: a sender far ahead waits until the receiver follows") {
  const std::size_t bytes = GENERATE(std::size_t{10'000}, std::size_t{1'000'000});
  const int messages = static_cast<int>(200'000'000 / bytes);
  const auto body = [&](TcpRank& me, std::barrier<>& all) {
    std::string wrong;
    int sent = 0;
    std::vector<Task<Error>> tasks;
    tasks.push_back(me.rank == 0 ? send_stream(me, messages, bytes, sent)
                                 : recv_stream(me, messages, bytes));
    if (me.rank == 0) {
      tasks[0].handle().resume();
      const std::uint64_t until = monotonic_ns() + second / 4;
      while (monotonic_ns() < until) me.turn();
      if (tasks[0].done()) wrong = "nothing held the sender back";
      all.arrive_and_wait();
      while (!tasks[0].done()) me.turn();
      if (tasks[0].result()) wrong = tasks[0].result().message();
    } else {
      const std::uint64_t until = monotonic_ns() + second / 4;
      while (monotonic_ns() < until) me.turn();
      all.arrive_and_wait();
      wrong = outcome(me, tasks);
    }
    return leave(me, all, wrong);
  };
  REQUIRE(run_tcp_ranks(2, body, maybe_encrypted()) == "");
}

Task<Error> send_borrowed(TcpRank& me, CommState& comm, std::span<const std::byte> data) {
  co_return co_await SendTo(me, comm, 1, 0, data);
}

std::string abort_sender(TcpRank& me, std::barrier<>& all, std::size_t bytes,
                         std::atomic<bool>& closed) {
  CommState doomed;
  doomed.id = 8;
  std::vector<std::byte> data = pattern(0, 0, bytes);
  std::vector<Task<Error>> tasks;
  for (int i = 0; i < 3; ++i) tasks.push_back(send_borrowed(me, doomed, data));
  tasks.push_back(send_one(me, me.comm, 1, 5, 500'000));
  for (Task<Error>& task : tasks) task.handle().resume();
  doomed.revoked = Error(Code::remote, "revoked");
  me.transport->quiesce(doomed, doomed.revoked);
  while (me.scheduler.run_ready()) {
  }
  std::string wrong;
  for (int i = 0; i < 3; ++i) {
    if (!tasks[static_cast<std::size_t>(i)].done()) wrong = "a send survived its communicator";
  }
  std::fill(data.begin(), data.end(), std::byte{0xEE});
  all.arrive_and_wait();
  const std::uint64_t deadline = monotonic_ns() + 30 * second;
  while (!tasks.back().done() && monotonic_ns() < deadline) me.turn();
  if (!tasks.back().done() || tasks.back().result()) wrong = "the other communicator suffered";
  // Writes out what is left of the aborted messages.
  const std::uint64_t patience = monotonic_ns() + 30 * second;
  me.transport->close(patience);
  if (monotonic_ns() >= patience) wrong = "what was left has not been taken";
  closed = true;
  return leave(me, all, wrong);
}

TEST_CASE("tcp: an abort in the middle leaves memory and other communicators alone") {
  const std::size_t bytes = 64 << 20;
  std::atomic<bool> closed{false};
  const auto body = [&](TcpRank& me, std::barrier<>& all) {
    if (me.rank == 0) return abort_sender(me, all, bytes, closed);
    all.arrive_and_wait();
    CommState doomed;
    doomed.id = 8;
    // The first message had begun, so it arrives whole, as it was when its send was aborted.
    std::vector<Task<Error>> tasks;
    tasks.push_back(recv_one(me, me.comm, 0, 5, 500'000));
    tasks.push_back(recv_one(me, doomed, 0, 0, bytes));
    const std::string wrong = outcome(me, tasks);
    // Who hears of the abort drops what else comes of the communicator.
    me.mailbox.forget(doomed.id);
    while (!closed) me.turn();
    return leave(me, all, wrong);
  };
  REQUIRE(run_tcp_ranks(2, body, maybe_encrypted()) == "");
}

std::string watch_loss(TcpRank& me, std::barrier<>& all) {
  int calls = 0;
  Error seen;
  me.transport->on_peer_lost = [&](int peer, const Error& error) {
    calls += peer == 1 ? 1 : 100;
    seen = error;
    me.comm.revoked = error;
    me.transport->quiesce(me.comm, error);
    me.mailbox.quiesce(me.comm, error);
  };
  std::vector<Task<Error>> tasks;
  tasks.push_back(recv_one(me, me.comm, 1, 0, 100));
  tasks.push_back(recv_one(me, me.comm, 1, 1, 8 << 20));  // of which a part arrives
  tasks.push_back(send_one(me, me.comm, 1, 2, 64 << 20));
  all.arrive_and_wait();
  if (!me.drive(tasks)) return "a lost peer is waited for";
  for (Task<Error>& task : tasks) {
    if (task.result().code() != Code::remote || task.result().rank() != 1) {
      return "an operation with a lost peer has ended otherwise";
    }
  }
  CommState fresh;
  fresh.id = 9;
  std::vector<Task<Error>> later;
  later.push_back(send_one(me, fresh, 1, 0, 8));
  if (!me.drive(later) || later[0].result().rank() != 1) return "a later send did not fail";
  if (calls != 1) return "the loss was not reported once";
  return seen.message() == std::string() ? "no message" : "";
}

TEST_CASE("tcp: a peer that dies ends everything that waits for it") {
  const auto body = [](TcpRank& me, std::barrier<>& all) {
    if (me.rank == 0) return watch_loss(me, all);
    auto sending = std::vector<Task<Error>>();
    sending.push_back(send_one(me, me.comm, 0, 1, 8 << 20));
    sending[0].handle().resume();
    all.arrive_and_wait();
    me.transport->quiesce(me.comm, Error(Code::internal, "dies"));
    while (me.scheduler.run_ready()) {
    }
    me.transport.reset();
    return std::string();
  };
  REQUIRE(run_tcp_ranks(2, body, maybe_encrypted()) == "");
}

TEST_CASE("tcp: a peer that leaves in order is missed only where something waits for it") {
  const auto body = [](TcpRank& me, std::barrier<>& all) {
    if (me.rank == 1) {
      std::vector<Task<Error>> tasks;
      tasks.push_back(send_one(me, me.comm, 0, 0, 3'000));
      std::string wrong = outcome(me, tasks);
      me.transport->close(monotonic_ns() + second);
      all.arrive_and_wait();
      return wrong;
    }
    int calls = 0;
    me.transport->on_peer_lost = [&](int, const Error& error) {
      ++calls;
      me.comm.revoked = error;
      me.mailbox.quiesce(me.comm, error);
    };
    all.arrive_and_wait();
    for (int i = 0; i < 50; ++i) me.turn();
    if (calls != 0) return std::string("an orderly end was taken for a loss");
    std::vector<Task<Error>> tasks;
    tasks.push_back(recv_one(me, me.comm, 1, 0, 3'000));
    if (std::string wrong = outcome(me, tasks); !wrong.empty()) return wrong;
    std::vector<Task<Error>> more;
    more.push_back(recv_one(me, me.comm, 1, 1, 10));
    if (!me.drive(more)) return std::string("a peer that has left is waited for");
    return std::string(calls == 1 && more[0].result().rank() == 1 ? "" : "no loss reported");
  };
  REQUIRE(run_tcp_ranks(2, body, maybe_encrypted()) == "");
}

// What the transports have in common. Its back-pressure is not among that: a socket takes more.
TEST_CASE("tcp: what every transport does, and a sleeper that its descriptor wakes") {
  const std::uint8_t all[2] = {1, 1};
  const TcpOptions options = maybe_encrypted();
  const auto body = [&](int rank, const pith_test::Names& names) {
    using pith_test::must;
    pith_test::Rank self(rank, 2);
    Secret secret{};
    secret[0] = std::byte{42};
    TcpTransport tcp(self.scheduler, self.mailbox, rank, 2, secret, options);
    self.transport = &tcp;
    Expected<std::string> mine = tcp.listen();
    must(static_cast<bool>(mine), mine.error().message());
    std::vector<std::string> addresses(2);
    addresses[static_cast<std::size_t>(1 - rank)] = names.swap(rank, *mine);
    const Error error = tcp.connect(addresses, all, monotonic_ns() + 30 * second);
    must(!error, error.message());
    self.meet(1 - rank, 1);
    check_sizes(self, sizes);
    check_unexpected(self);
    check_borrow(self, 100);
    check_borrow(self, 4000);
    check_sleep(self);
    self.meet(1 - rank, 50000);
    tcp.close(monotonic_ns() + second);
  };
  CHECK(pith_test::run_threads(body) == "");
  CHECK(pith_test::run_forked(body) == "");
}

}  // namespace
}  // namespace pith::test
