// The data port: strangers while ranks connect, and a peer that sends nonsense while others work.
#include <atomic>
#include <map>
#include <span>

#include "catch.hpp"
#include "tests/transport/tcp_ranks.hpp"
#include "tests/transport/unauthenticated_clients.hpp"

namespace pith::test {
namespace {

constexpr int ranks = 3;
constexpr int evil = 1;

Secret job_secret() {
  Secret secret{};
  secret[9] = std::byte{12};
  return secret;
}

// Ranks 0 and 2 of three; what rank 1 does is the test's affair.
class Job {
 public:
  Job() {
    addresses_ = {*zero_.transport->listen(), *listen_on_one(), *two_.transport->listen()};
    in_vain_.id = 9;
    zero_.transport->on_peer_lost = [this](int rank, const Error& error) {
      lost_[rank] = error.message();
      in_vain_.revoked = error;
      zero_.mailbox.quiesce(in_vain_, error);
    };
  }
  const std::string& address() const { return addresses_[0]; }
  const std::string& lost(int rank) { return lost_[rank]; }
  bool has_lost(int rank) const { return lost_.contains(rank); }

  // Rank 0 is connected to those of `use`; rank 2 to rank 0 alone.
  Error connect(std::vector<std::uint8_t> use) {
    Error other;
    std::thread two([&] {
      other = two_.transport->connect(addresses_, std::vector<std::uint8_t>{1, 0, 0},
                                      monotonic_ns() + 20 * second);
    });
    const Error error = zero_.transport->connect(addresses_, use, monotonic_ns() + 20 * second);
    two.join();
    return error ? error : other;
  }
  // The streams that rank 1 would open, with a right handshake; beside connect().
  std::vector<Descriptor> enter() const {
    std::vector<Descriptor> streams;
    for (int stream = 0; stream < TcpOptions().streams.at_start; ++stream) {
      streams.push_back(call_port(address()));
      Handshake handshake =
          Handshake::connector(job_secret(), {"pith-data", evil, 0, ranks, stream});
      static_cast<void>(shake_hands(handshake, streams.back().get(), monotonic_ns() + 20 * second));
    }
    return streams;
  }
  // A message of every size from rank 2 to rank 0.
  bool talk() {
    for (const std::size_t bytes : {0u, 1u, 5000u, 3'000'000u}) {
      const std::vector<std::byte> sent = pattern(2, step_, bytes);
      std::vector<std::byte> got(bytes);
      std::vector<Task<Error>> sending;
      std::vector<Task<Error>> receiving;
      sending.push_back(send(two_, sent, step_));
      receiving.push_back(receive(zero_, got, step_));
      ++step_;
      bool sent_all = false;
      std::thread two([&] { sent_all = two_.drive(sending, 10 * second); });
      const bool received = zero_.drive(receiving, 10 * second);
      two.join();
      if (!received || !sent_all || receiving[0].take() || sending[0].take() || got != sent) {
        return false;
      }
    }
    return true;
  }
  bool wait_for_loss() {
    const std::uint64_t until = monotonic_ns() + 5 * second;
    while (!has_lost(evil) && monotonic_ns() < until) zero_.turn();
    return has_lost(evil);
  }
  // A peer that closes its connections is lost to whoever waits for it, and not before.
  bool wait_for_loss_by_waiting() {
    for (int turns = 0; turns < 50; ++turns) zero_.turn();
    if (has_lost(evil)) return false;
    std::vector<std::byte> nothing(10);
    std::vector<Task<Error>> waiting;
    waiting.push_back(receive_from_evil(zero_, in_vain_, nothing));
    return zero_.drive(waiting, 5 * second) && waiting[0].take() && has_lost(evil);
  }

 private:
  static Task<Error> send(TcpRank& me, const std::vector<std::byte>& data, std::uint32_t step) {
    co_return co_await SendTo(me, me.comm, 0, step, data);
  }
  static Task<Error> receive(TcpRank& me, std::vector<std::byte>& into, std::uint32_t step) {
    co_return co_await RecvFrom(me, me.comm, 2, step, into);
  }
  static Task<Error> receive_from_evil(TcpRank& me, CommState& comm, std::vector<std::byte>& into) {
    co_return co_await RecvFrom(me, comm, evil, 0, into);
  }
  Expected<std::string> listen_on_one() {
    Expected<Descriptor> listener = listen_on("127.0.0.1");
    if (!listener) return listener.error();
    nobody_ = std::move(*listener);
    return format_address(*local_address(nobody_.get()));
  }

  TcpRank zero_{0, ranks, job_secret()};
  TcpRank two_{2, ranks, job_secret()};
  CommState in_vain_;  // of what waits for rank 1
  Descriptor nobody_;
  std::vector<std::string> addresses_;
  std::map<int, std::string> lost_;
  std::uint32_t step_ = 0;
};

template <class T>
std::string bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

MessageOpening opening_of(std::uint32_t bytes, std::uint32_t length) {
  MessageOpening opening;
  opening.frame.bytes = bytes;
  opening.header.comm = 7;
  opening.header.length = length;
  return opening;
}

TEST_CASE("tcp: strangers and a crowd at the port keep no rank out", "[hostile]") {
  Job job;
  const std::vector<Descriptor> crowd = silent_crowd(job.address());
  {
    const UnauthenticatedClients strangers(job.address(), job_secret(),
                                           {"pith-data", 2, 0, ranks, 0}, 3);
    const std::uint64_t begin = monotonic_ns();
    CHECK(std::string(job.connect({0, 0, 1}).message()) == "");
    CHECK(monotonic_ns() - begin < 10 * second);
    CHECK(job.talk());
    CHECK(strangers.let_in() == 0);
  }
  CHECK(job.talk());
  CHECK_FALSE(job.has_lost(2));
}

Task<Error> say_to(TcpRank& me, int peer, const std::vector<std::byte>& data) {
  co_return co_await SendTo(me, me.comm, peer, 0, data);
}

Task<Error> hear_from(TcpRank& me, int peer, std::vector<std::byte>& into) {
  co_return co_await RecvFrom(me, me.comm, peer, 0, into);
}

// The port of a rank that connects on demand is open as long as the rank lives.
TEST_CASE("tcp: strangers and a crowd while pairs connect on demand", "[hostile]") {
  TcpOptions options;
  options.streams.on_demand = true;
  std::atomic<int> let_in = 0;
  const auto body = [&](TcpRank& me, std::barrier<>& all) -> std::string {
    std::string complaint;
    if (me.rank == 1 || me.rank == 6) {
      const int peer = 7 - me.rank;
      const std::vector<Descriptor> crowd = silent_crowd(me.address);
      const UnauthenticatedClients strangers(me.address, secret_of_tcp_ranks(),
                                             {"pith-data", peer, me.rank, 8, 0}, 3);
      const std::vector<std::byte> sent = pattern(me.rank, 0, 100'000);
      std::vector<std::byte> got(sent.size());
      std::vector<Task<Error>> tasks;
      tasks.push_back(say_to(me, peer, sent));
      tasks.push_back(hear_from(me, peer, got));
      if (!me.drive(tasks)) complaint = "the ranks hang";
      for (Task<Error>& task : tasks) {
        if (complaint.empty() && task.result()) complaint = task.result().message();
      }
      if (complaint.empty() && got != pattern(peer, 0, got.size())) complaint = "wrong contents";
      let_in += static_cast<int>(strangers.let_in());
    }
    all.arrive_and_wait();
    me.transport->close(monotonic_ns() + second);
    return complaint;
  };
  CHECK(run_tcp_ranks(8, body, options) == "");
  CHECK(let_in == 0);
}

TEST_CASE("tcp: handshakes that are guessed or replayed are refused", "[hostile]") {
  Job job;
  std::optional<UnauthenticatedClients> strangers;
  strangers.emplace(job.address(), job_secret(), Greeting{"pith-data", 2, 0, ranks, 0}, 2);
  Error error;
  std::thread connecting([&] { error = job.connect({0, 1, 1}); });
  // Rank 1 comes late: until then the port is open.
  const std::uint64_t until = monotonic_ns() + 5 * second;
  while (strangers->tried() < 10 && monotonic_ns() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const std::vector<Descriptor> streams = job.enter();
  connecting.join();
  CHECK(std::string(error.message()) == "");
  CHECK(strangers->tried() >= 10);
  CHECK(strangers->let_in() == 0);
  strangers.reset();
  CHECK(job.talk());
}

TEST_CASE("tcp: a peer that sends nonsense is lost, the others go on", "[hostile]") {
  struct Nonsense {
    std::string bytes;
    bool closes;
    std::string cause;
  };
  Frame piece;
  piece.type = FrameType::piece;
  piece.bytes = 10;
  piece.message = 3;
  const Nonsense all[] = {
      {std::string(100, '\xff'), false, "a frame of another wire version"},
      {bytes_of(opening_of(message_bytes_max + 1, message_bytes_max + 1)), false,
       "a frame that makes no sense"},
      {bytes_of(opening_of(8, 0xffffffff)), false, "a message that is too long"},
      {bytes_of(opening_of(8, 9)), false, "a message whose lengths differ"},
      {bytes_of(piece), false, "a piece of an unknown message"},
      {bytes_of(opening_of(100, 100)).substr(0, 20), true, "closed the connection"},
      {bytes_of(opening_of(100, 100)) + "truncated", true, "closed the connection"},
      {bytes_of(opening_of(1'000'000, 1'000'000)) + std::string(9999, 'x'), true,
       "closed the connection"},
      {"", true, "closed the connection"},
  };
  for (const Nonsense& nonsense : all) {
    Job job;
    Error error;
    std::thread connecting([&] { error = job.connect({0, 1, 1}); });
    std::vector<Descriptor> streams = job.enter();
    connecting.join();
    REQUIRE(std::string(error.message()) == "");
    CHECK(job.talk());
    say(streams[0], nonsense.bytes);
    if (nonsense.closes) streams.clear();
    CHECK((nonsense.closes ? job.wait_for_loss_by_waiting() : job.wait_for_loss()));
    INFO(job.lost(evil));
    CHECK(job.lost(evil).find("rank 1 is lost") != std::string::npos);
    CHECK(job.lost(evil).find(nonsense.cause) != std::string::npos);
    CHECK(job.talk());
    CHECK_FALSE(job.has_lost(2));
  }
}

TEST_CASE("tcp: a peer that stops in the middle of a frame holds up nobody", "[hostile]") {
  Job job;
  Error error;
  std::thread connecting([&] { error = job.connect({0, 1, 1}); });
  const std::vector<Descriptor> streams = job.enter();
  connecting.join();
  REQUIRE(std::string(error.message()) == "");
  for (const char byte : bytes_of(opening_of(100, 100))) {
    say(streams[0], {&byte, 1});
    if (byte == 100) CHECK(job.talk());
  }
  CHECK(job.talk());
  CHECK_FALSE(job.has_lost(evil));
}

}  // namespace
}  // namespace pith::test
