// Encrypted connections of TcpTransport, with somebody in between who reads and alters.
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

#include "catch.hpp"
#include "tests/transport/tcp_ranks.hpp"
#include "tests/transport/unauthenticated_clients.hpp"

namespace pith::test {
namespace {

constexpr std::string_view said = "what only the two ranks are to know";

// Stands between rank 1 and the port of rank 0, and passes on what either sends.
class Between {
 public:
  Between() {
    Expected<Descriptor> listener = listen_on("127.0.0.1");
    REQUIRE(listener);
    listener_ = std::move(*listener);
    address_ = format_address(*local_address(listener_.get()));
  }
  ~Between() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  const std::string& address() const { return address_; }
  void stand_before(const std::string& target) {
    thread_ = std::thread([this, target] { pass_on(target); });
  }
  // From now on a bit of all that rank 1 sends is another one.
  void alter() { alters_ = true; }
  bool has_read(std::string_view text) {
    const std::lock_guard lock(mutex_);
    return read_.find(text) != std::string::npos;
  }

 private:
  struct Pair {
    Descriptor from;
    Descriptor to;
  };

  void pass_on(const std::string& target) {
    std::vector<Pair> pairs;
    while (!stop_) {
      if (Expected<Descriptor> one = accept_one(listener_.get()); one && *one) {
        pairs.push_back({std::move(*one), call_port(target)});
      }
      bool moved = false;
      for (Pair& pair : pairs) {
        moved |= move(pair.from, pair.to, alters_);
        moved |= move(pair.to, pair.from, false);
      }
      if (!moved) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  bool move(Descriptor& from, Descriptor& to, bool alters) {
    if (!from || !to) return false;
    char bytes[65536];
    const ssize_t got = ::recv(from.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (got < 0) return false;
    if (got == 0) ::shutdown(to.get(), SHUT_WR);
    if (got == 0) return false;
    const std::string_view all(bytes, static_cast<std::size_t>(got));
    if (alters) bytes[got / 2] ^= 1;
    {
      const std::lock_guard lock(mutex_);
      read_ += all;
    }
    say(to, all);
    return true;
  }

  Descriptor listener_;
  std::string address_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> alters_{false};
  std::mutex mutex_;
  std::string read_;
  std::thread thread_;
};

Task<Error> send(TcpRank& me, std::span<const std::byte> data) {
  co_return co_await SendTo(me, me.comm, 0, 0, data);
}

Task<Error> receive(TcpRank& me, std::span<std::byte> into) {
  co_return co_await RecvFrom(me, me.comm, 1, 0, into);
}

struct Two {
  explicit Two(bool encrypt0, bool encrypt1)
      : zero(0, 2, secret_of_tcp_ranks(), options(encrypt0)),
        one(1, 2, secret_of_tcp_ranks(), options(encrypt1)) {
    const std::string address = *zero.transport->listen();
    addresses = {address, *one.transport->listen()};
    zero.transport->on_peer_lost = [this](int, const Error& error) {
      lost = error.message();
      zero.comm.revoked = error;
      zero.mailbox.quiesce(zero.comm, error);
    };
  }
  static TcpOptions options(bool encrypt) {
    TcpOptions made;
    made.encrypt = encrypt;
    return made;
  }
  // The first error. Rank 1 finds rank 0 at `at`.
  Error connect(const std::string& at, std::uint64_t patience_ns) {
    const std::vector<std::uint8_t> use{1, 1};
    Error other;
    std::thread second_rank([&] {
      const std::vector<std::string> seen{at, addresses[1]};
      other = one.transport->connect(seen, use, monotonic_ns() + patience_ns);
    });
    const Error error = zero.transport->connect(addresses, use, monotonic_ns() + patience_ns);
    second_rank.join();
    return error ? error : other;
  }
  // Rank 1 sends to rank 0; what that hears.
  Error talk(std::span<const std::byte> data, std::span<std::byte> into) {
    std::vector<Task<Error>> sending;
    std::vector<Task<Error>> receiving;
    sending.push_back(send(one, data));
    receiving.push_back(receive(zero, into));
    std::atomic<bool> heard{false};
    std::thread second_rank([&] {
      one.drive(sending, 10 * second);
      while (!heard) one.turn();
    });
    const bool done = zero.drive(receiving, 10 * second);
    heard = true;
    second_rank.join();
    if (!done) return Error(Code::internal, "the ranks hang");
    static_cast<void>(sending[0].take());
    return receiving[0].take();
  }

  TcpRank zero;
  TcpRank one;
  std::vector<std::string> addresses;
  std::string lost;
};

// What both ends of a new connection make of one secret.
std::pair<ConnectionKeys, ConnectionKeys> keys_of_both() {
  int ends[2] = {-1, -1};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
  const Descriptor near(ends[0]);
  const Descriptor far(ends[1]);
  const Secret secret = secret_of_tcp_ranks();
  Handshake connector = Handshake::connector(secret, {"keys", 1, 0, 2, 3});
  Handshake acceptor = Handshake::acceptor(secret, {"keys", Greeting::any, 0, 2});
  for (int turn = 0; turn < 3; ++turn) {
    REQUIRE(connector.step(near.get()));
    REQUIRE(acceptor.step(far.get()));
  }
  REQUIRE(*connector.step(near.get()) == Handshake::Want::done);
  REQUIRE(*acceptor.step(far.get()) == Handshake::Want::done);
  return {connector.keys(), acceptor.keys()};
}

TEST_CASE("each direction of each connection has a key of its own", "[encrypted]") {
  const auto [one, other] = keys_of_both();
  CHECK(one.sending == other.receiving);
  CHECK(one.receiving == other.sending);
  CHECK(one.sending != one.receiving);
  const ConnectionKeys next = keys_of_both().first;
  for (const Digest& key : {one.sending, one.receiving}) {
    CHECK(key != next.sending);
    CHECK(key != next.receiving);
  }
}

TEST_CASE("tcp: who listens reads what ranks say only where it is not encrypted", "[encrypted]") {
  const bool encrypt = GENERATE(false, true);
  Between between;
  Two ranks(encrypt, encrypt);
  between.stand_before(ranks.addresses[0]);
  REQUIRE_FALSE(ranks.connect(between.address(), 20 * second));
  std::vector<std::byte> got(said.size());
  const Error error = ranks.talk(std::as_bytes(std::span(said)), got);
  REQUIRE_FALSE(error);
  CHECK(same(got, std::as_bytes(std::span(said))));
  CHECK(between.has_read(said) == !encrypt);
}

TEST_CASE("tcp: what was altered on its way is an error, and names its sender", "[encrypted]") {
  const std::size_t bytes = GENERATE(std::size_t{35}, std::size_t{3'000'000});
  Between between;
  Two ranks(true, true);
  between.stand_before(ranks.addresses[0]);
  REQUIRE_FALSE(ranks.connect(between.address(), 20 * second));
  between.alter();
  std::vector<std::byte> got(bytes);
  const Error error = ranks.talk(contents(bytes, 1), got);
  CHECK(error.rank() == 1);
  CHECK(ranks.lost.find("rank 1") != std::string::npos);
  CHECK(ranks.lost.find("it sent an encrypted record") != std::string::npos);
}

TEST_CASE("tcp: ranks of which only one encrypts do not connect", "[encrypted]") {
  const bool lower = GENERATE(false, true);
  Two ranks(lower, !lower);
  CHECK(ranks.connect(ranks.addresses[0], second));
}

}  // namespace
}  // namespace pith::test
