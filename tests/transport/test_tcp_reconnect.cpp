// Connections that break while both processes live.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <random>

#include "catch.hpp"
#include "tests/sanitized.hpp"
#include "tests/transport/own_sockets.hpp"
#include "tests/transport/tcp_ranks.hpp"
#include "transport/tcp/tcp_history.hpp"
#include "transport/tcp/tcp_resumption.hpp"

namespace pith::test {
namespace {

iovec part_of(std::span<const std::byte> bytes) {
  return {const_cast<std::byte*>(bytes.data()), bytes.size()};
}

TEST_CASE("a history has what may be unacknowledged, at its place", "[reconnect]") {
  std::mt19937 random(7);
  TcpHistory history;
  std::vector<std::byte> all;
  for (int step = 0; step < 400; ++step) {
    const std::vector<std::byte> more =
        pattern(0, static_cast<std::uint32_t>(step), 1 + random() % 100'000);
    const std::size_t cut = random() % (more.size() + 1);
    const iovec parts[2] = {part_of(std::span(more).first(cut)),
                            part_of(std::span(more).subspan(cut))};
    const std::size_t sent = 1 + random() % more.size();
    all.insert(all.end(), more.begin(), more.begin() + static_cast<std::ptrdiff_t>(sent));
    const std::size_t unacknowledged = random() % std::min<std::size_t>(all.size(), 900'000);
    history.add(parts, sent, [&] { return unacknowledged; });
    REQUIRE(history.end() == all.size());
    const std::uint64_t begin = all.size() - std::max(sent, std::min(unacknowledged, sent));
    REQUIRE(history.has(begin));
    REQUIRE_FALSE(history.has(all.size() + 1));
    for (std::uint64_t at = begin; at < history.end();) {
      const std::span<const std::byte> next = history.from(at);
      REQUIRE(!next.empty());
      REQUIRE(std::equal(next.begin(), next.end(), all.begin() + static_cast<std::ptrdiff_t>(at)));
      at += next.size();
    }
  }
}

TEST_CASE("a history gives its memory back once nothing is sent", "[reconnect]") {
  const std::vector<std::byte> sent(300'000, std::byte{1});
  const iovec part = part_of(sent);
  TcpHistory history;
  std::size_t unacknowledged = sent.size();
  history.add({&part, 1}, sent.size(), [&] { return unacknowledged; });
  const auto look = [&] {
    history.rest([&] { return unacknowledged; });
    return history.memory_bytes();
  };
  CHECK(look() != 0);
  CHECK(look() != 0);  // all of it may have to be sent again
  unacknowledged = 0;
  history.add({&part, 1}, 10, [&] { return unacknowledged; });
  CHECK(look() != 0);
  CHECK(look() == 0);
  CHECK(history.has(history.end()));
  CHECK_FALSE(history.has(history.end() - 1));
  history.add({&part, 1}, sent.size(), [&] { return unacknowledged; });
  CHECK(history.has(history.end() - sent.size()));
}

TEST_CASE("who has lost what was acknowledged in its name is told so", "[reconnect]") {
  TcpResumption ours;
  const std::vector<std::byte> sent(600'000, std::byte{1});
  for (int i = 0; i < 3; ++i) {
    const iovec part = part_of(sent);
    ours.wrote({&part, 1}, sent.size(), [] { return std::size_t{10}; });
  }
  const std::uint64_t has = GENERATE(5u, 1'800'001u);
  TcpResumption theirs;
  theirs.received(has);
  ours.begin_connection();
  theirs.begin_connection();
  std::span<const std::byte> greeting = theirs.to_send();
  const auto get = [&](std::span<std::byte> into) {
    const std::size_t now = std::min(greeting.size(), into.size());
    std::ranges::copy(greeting.first(now), into.begin());
    greeting = greeting.subspan(now);
    return static_cast<ssize_t>(now);
  };
  CHECK(ours.read_greeting(get, 0) < 0);
  CHECK(ours.fault() != nullptr);
  CHECK(greeting.empty());
}

struct Load {
  int messages;
  std::size_t most_bytes;
};

std::size_t length_of(const Load& load, int i) {
  std::mt19937 random(static_cast<unsigned>(i) + 1);
  return i % 3 == 0 ? random() % 100 : random() % load.most_bytes;
}

Task<Error> send_all(TcpRank& me, int to, Load load) {
  for (int i = 0; i < load.messages; ++i) {
    const auto step = static_cast<std::uint32_t>(i);
    // Overwritten as soon as the send is complete.
    std::vector<std::byte> data = pattern(me.rank, step, length_of(load, i));
    if (Error error = co_await SendTo(me, me.comm, to, step, data)) co_return error;
    std::ranges::fill(data, std::byte{0xee});
  }
  co_return Error();
}

Task<Error> recv_all(TcpRank& me, int from, Load load) {
  for (int i = 0; i < load.messages; ++i) {
    const auto step = static_cast<std::uint32_t>(i);
    std::vector<std::byte> into(length_of(load, i));
    if (Error error = co_await RecvFrom(me, me.comm, from, step, into)) co_return error;
    if (!same(into, pattern(from, step, into.size()))) {
      co_return Error(Code::internal, "wrong contents");
    }
  }
  co_return Error();
}

// Breaks a random connection now and then, at either end, until it is told to end.
class Breaker {
 public:
  // Pauses between breaks: from `least_us` on, nine times as long at most.
  explicit Breaker(int port, int least_us = 5000)
      : port_(port), least_us_(least_us), thread_([this] { run(); }) {}
  ~Breaker() {
    ends_ = true;
    thread_.join();
  }
  Breaker(const Breaker&) = delete;
  int broken() const { return broken_; }

 private:
  void run() {
    constexpr int most =
        60;  // so that there is an end where each break costs more than comes between
    std::mt19937 random(3);
    while (!ends_ && broken_ < most) {
      const auto more_us = static_cast<int>(random() % static_cast<unsigned>(8 * least_us_));
      std::this_thread::sleep_for(std::chrono::microseconds(least_us_ + more_us));
      const std::vector<int> sockets = sockets_at(port_);
      if (sockets.empty()) continue;
      const int how = random() % 2 == 0 ? SHUT_RDWR : SHUT_WR;
      if (::shutdown(sockets[random() % sockets.size()], how) == 0) ++broken_;
    }
  }

  int port_;
  int least_us_;
  std::atomic<bool> ends_{false};
  std::atomic<int> broken_{0};
  std::thread thread_;
};

// What one of two ranks sends and receives, until both are `done`. Returns what has gone wrong.
std::string talk(TcpRank& me, Load load, std::atomic<int>& done,
                 std::uint64_t allowed_ns = 60 * second) {
  std::vector<Task<Error>> tasks;
  tasks.push_back(send_all(me, 1 - me.rank, load));
  tasks.push_back(recv_all(me, 1 - me.rank, load));
  const bool ended = me.drive(tasks, allowed_ns);
  std::string wrong = ended ? "" : "not in time";
  for (Task<Error>& task : tasks) {
    if (ended && task.result()) wrong = task.result().message();
  }
  if (ended && !wrong.empty()) done = 2;  // the other one will not end
  ++done;
  while (ended && done < 2) me.turn();  // the other one may lack something
  return wrong;
}

TEST_CASE("tcp: connections that break while both ranks live go on, and nothing is lost or doubled",
          "[reconnect]") {
  TcpOptions options;
  options.reconnect = Reconnect::always;
  options.encrypt = GENERATE(false, true);
  options.streams.at_start = GENERATE(1, 4);
  const bool on_one_host = options.encrypt == (options.streams.at_start == 1);
  options.cut_bytes = 100'000;
  options.piece_bytes = 30'000;
  const int usual = sanitized ? 40 : 600;
  const Load load{full ? 5 * usual : usual, 600'000};
  std::atomic<int> port{0};
  std::atomic<int> broken{0};
  std::atomic<int> done{0};
  const std::string complaint = run_tcp_ranks(
      2,
      [&](TcpRank& me, std::barrier<>& all) -> std::string {
        if (me.rank == 0) port = port_of(me.address);
        all.arrive_and_wait();
        std::unique_ptr<Breaker> breaker;
        if (me.rank == 0) breaker = std::make_unique<Breaker>(port);
        const std::string wrong = talk(me, load, done);
        if (breaker) broken = breaker->broken();
        breaker.reset();
        all.arrive_and_wait();
        return wrong.empty() ? wrong : "rank " + std::to_string(me.rank) + ": " + wrong;
      },
      options, on_one_host);
  CHECK(complaint == "");
  CHECK(broken > (sanitized ? 0 : 3));
}

// What one of two ranks does whose connections break from the first on.
std::string open_and_talk(TcpRank& me, const std::vector<std::string>& addresses,
                          std::atomic<int>& done) {
  const std::vector<std::uint8_t> use(2, 1);
  if (Error error = me.transport->connect(addresses, use, monotonic_ns() + 20 * second)) {
    done = 2;  // the other one will not end
    return error.message();
  }
  return talk(me, {4, 200'000}, done, 20 * second);
}

TEST_CASE("tcp: connections that break while a pair is opened", "[reconnect]") {
  TcpOptions options;
  options.reconnect = Reconnect::always;
  options.streams.at_start = 3;
  options.cut_bytes = 50'000;
  options.piece_bytes = 20'000;
  int broken = 0;
  for (int round = 0; round < (sanitized ? 5 : 20); ++round) {
    options.encrypt = round % 2 == 1;
    TcpRank zero(0, 2, secret_of_tcp_ranks(), options);
    TcpRank one(1, 2, secret_of_tcp_ranks(), options);
    const std::vector<std::string> addresses{*zero.transport->listen(), *one.transport->listen()};
    const Breaker breaker(port_of(addresses[0]), 200);
    std::atomic<int> done{0};
    std::string complaint;
    std::thread other([&] { complaint = open_and_talk(one, addresses, done); });
    CHECK(open_and_talk(zero, addresses, done) == "");
    other.join();
    CHECK(complaint == "");
    broken += breaker.broken();
  }
  CHECK(broken > 5);
}

Task<Error> recv_one(TcpRank& me, std::span<std::byte> into) {
  co_return co_await RecvFrom(me, me.comm, 1 - me.rank, 0, into);
}

// Rank 1 ends without a word, or has lost rank 0 for a reason of its own.
TEST_CASE("tcp: who is gone, or has given up, is not waited for", "[reconnect]") {
  const bool gives_up = GENERATE(false, true);
  std::atomic<int> told{0};
  TcpOptions options;
  options.reconnect = Reconnect::always;
  options.encrypt = GENERATE(false, true);
  const std::string complaint = run_tcp_ranks(
      2,
      [&](TcpRank& me, std::barrier<>& all) -> std::string {
        std::vector<int> accepted;  // the other ends are rank 1's
        const int port = port_of(me.address);
        if (me.rank == 0) accepted = sockets_at(port);
        std::erase_if(accepted, [port](int fd) { return own_port(fd) != port; });
        all.arrive_and_wait();
        if (me.rank == 1 && !gives_up) {
          me.transport.reset();
          all.arrive_and_wait();
          return "";
        }
        // What no rank says ends a connection for good: rank 1 finds it, rank 0 hears of it.
        const std::array<std::byte, 64> nonsense{};
        if (gives_up && me.rank == 0) {
          for (const int fd : accepted) ::send(fd, nonsense.data(), nonsense.size(), MSG_NOSIGNAL);
        }
        std::string why;
        me.transport->on_peer_lost = [&](int, const Error& error) {
          why = error.message();
          ++told;
        };
        std::vector<std::byte> into(10);
        Task<Error> task = recv_one(me, into);
        task.handle().resume();
        const std::uint64_t until = monotonic_ns() + 5 * second;
        const int all_told = gives_up ? 2 : 1;  // a rank must be driven to tell the other
        while (told < all_told && monotonic_ns() < until) me.turn();
        all.arrive_and_wait();
        me.mailbox.quiesce(me.comm, Error(Code::remote, "over"));
        while (!task.done()) me.turn();
        return why.empty() ? "the other rank is waited for" : "";
      },
      options);
  CHECK(complaint == "");
}

}  // namespace
}  // namespace pith::test
