// UnauthenticatedClients at every port of a job, while its ranks join and while they work.
#include <algorithm>
#include <functional>
#include <memory>
#include <thread>

#include "../api/ranks.hpp"
#include "catch.hpp"
#include "startup/blob.hpp"
#include "startup/bootstrap.hpp"
#include "startup/rendezvous.hpp"
#include "tests/comm/meeting_places.hpp"
#include "tests/transport/port_noise.hpp"
#include "tests/transport/unauthenticated_clients.hpp"

using namespace pith;
using namespace pith::test;
using namespace ranks;

namespace {

Greeting greeting_of(int rank, int ranks) { return {"bootstrap", rank, 0, ranks, 0}; }

// Two rounds of `ranks` ranks; what went wrong.
std::string meet_at(const UniqueId& id, int ranks) {
  std::vector<std::string> wrong(static_cast<std::size_t>(ranks));
  const auto body = [&](int rank) -> std::string {
    Expected<Bootstrap> joined = Bootstrap::join(id, rank, ranks, 20);
    if (!joined) return joined.error().message();
    for (const std::size_t bytes : {3u, 200'000u}) {
      const auto all = joined->gather(std::string(bytes, static_cast<char>('a' + rank)));
      if (!all) return all.error().message();
      for (int r = 0; r < ranks; ++r) {
        if ((*all)[static_cast<std::size_t>(r)] != std::string(bytes, static_cast<char>('a' + r))) {
          return "a wrong blob";
        }
      }
    }
    return {};
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] { wrong[static_cast<std::size_t>(rank)] = body(rank); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : wrong) {
    if (!text.empty()) return text;
  }
  return {};
}

// A guest that knows the secret.
Descriptor enter(const UniqueId& id, int rank, int ranks) {
  Descriptor socket = call_port(id.address);
  Handshake handshake = Handshake::connector(id.secret, greeting_of(rank, ranks));
  const Error error = shake_hands(handshake, socket.get(), monotonic_ns() + 5'000'000'000);
  ensure(!error, error.message());
  std::string hello;
  append_blob(hello, "a guest");
  say(socket, hello);
  return socket;
}

std::vector<std::string> addresses_of(int first, int count) {
  std::vector<std::string> addresses;
  for (int port = first; port < first + count; ++port) {
    addresses.push_back("127.0.0.1:" + std::to_string(port));
  }
  return addresses;
}

// The first of 40 ports that nobody else is likely to ask for.
int quiet_ports() { return 21'000 + static_cast<int>(getpid() % 200) * 40; }

// Calls every port of the range again and again and says what strangers say.
class Raid {
 public:
  explicit Raid(std::vector<std::string> addresses)
      : addresses_(std::move(addresses)), thread_([this] { call_all(); }) {}
  ~Raid() {
    stop_ = true;
    thread_.join();
  }
  int answered() const { return answered_; }

 private:
  void call_all() {
    const std::string noise(300, '\xff');
    const std::string_view words[] = {"", "GET / HTTP/1.1\r\n\r\n", "PITH", noise};
    for (std::size_t turn = 0; !stop_; ++turn) {
      for (const std::string& address : addresses_) {
        Descriptor socket = call_port(address);
        if (!socket) continue;
        ++answered_;
        say(socket, words[turn % 4]);
        if (turn % 3 == 0) held_.push_back(std::move(socket));
      }
      if (held_.size() > 200) held_.clear();
      sleep_s(0.002);
    }
  }

  const std::vector<std::string> addresses_;
  std::vector<Descriptor> held_;
  std::atomic<bool> stop_{false};
  std::atomic<int> answered_{0};
  std::thread thread_;
};

// One whose number of ranks is another shows that the start cannot succeed.
void start_with_another_size(Rank&) {
  const UniqueId id = open_root(20);
  const Descriptor first = enter(id, 0, 2);
  sleep_s(0.1);
  const Descriptor other = enter(id, 1, 3);
  for (const Descriptor* told : {&other, &first}) {
    ensure(hear_some(*told, 400).find("gives nranks 3, others give 2") != std::string::npos,
           "another size was not told of");
  }
  Expected<Bootstrap> late = Bootstrap::join(id, 1, 2, 20);
  ensure(static_cast<bool>(late), "who comes later is not told");
  ensure(std::string(late->gather("x").error().message()).find("nranks 3") != std::string::npos,
         "who comes later is told something else");
}

// A rank that the job does not have is told so, and the job starts all the same.
void start_beside_wrong_guests(Rank&) {
  const UniqueId id = open_root(20);
  const Descriptor first = enter(id, 0, 2);
  std::string hello;
  append_blob(hello, "from rank 0");
  say(first, hello);
  const Descriptor beyond = enter(id, 2, 2);
  ensure(hear_some(beyond, 200).find("rank is 2, expected 0 to 1") != std::string::npos,
         "a rank too high was not refused");
  say(beyond, std::string(10'000, '\xff'));
  Expected<Bootstrap> second = Bootstrap::join(id, 1, 2, 20);
  ensure(static_cast<bool>(second), "rank 1 was kept out");
  ensure(static_cast<bool>(second->gather("from rank 1")), "no round");
}

// A member that is cut off in the middle of a blob ends the start-up, by name.
void start_with_a_cut_member(Rank&) {
  for (const std::string& bytes :
       {std::string("\x10\0\0", 3), std::string("\xff\xff\xff\x7f\0\0\0\0x", 9)}) {
    const UniqueId id = open_root(20);
    Descriptor cut = enter(id, 1, 2);
    say(cut, bytes);
    cut.reset();
    Expected<Bootstrap> zero = Bootstrap::join(id, 0, 2, 20);
    const Error error = zero ? zero->gather("x").error() : zero.error();
    const std::string text = error.message();
    ensure(text.find("rank 1 went away") != std::string::npos, text);
  }
}

// Works on until all have had enough.
void join_and_work(Rank& self, const std::function<bool()>& enough) {
  const double begin = now_s();
  const Comm comm(self.join());
  ensure(now_s() - begin < 8, "strangers held up the start");
  std::vector<std::int32_t> ones(20'000, 1);
  std::vector<std::int32_t> sums(ones.size());
  const auto all_have = [&] {
    const std::int32_t has = enough() ? 1 : 0;
    std::int32_t have = 0;
    ok(pithAllReduce(&has, &have, 1, pithInt32, pithSum, comm, nullptr));
    return have == self.size;
  };
  // The same number of calls everywhere.
  for (int i = 0; i < 300 || !all_have(); ++i) {
    std::fill(sums.begin(), sums.end(), 0);
    ok(pithAllReduce(ones.data(), sums.data(), ones.size(), pithInt32, pithSum, comm, nullptr));
    ensure(sums[0] == self.size && sums.back() == self.size, "a wrong sum");
    if (i % 10 == 0) sleep_s(0.01);
  }
  self.meet();
}

}  // namespace

TEST_CASE("strangers at the bootstrap root are refused", "[hostile]") {
  CHECK(run(1, alone(), [](Rank&) {
          const UniqueId id = open_root(20);
          UnauthenticatedClients strangers(id.address, id.secret, greeting_of(1, 3));
          wait_until([&] { return strangers.tried() >= 4; });
          const double begin = now_s();
          const std::string wrong = meet_at(id, 3);
          ensure(wrong.empty(), wrong);
          ensure(now_s() - begin < 5, "strangers held up the start");
          ensure(strangers.let_in() == 0, "a guessed or replayed handshake was welcome");
        }) == "");
}

TEST_CASE("a crowd at the bootstrap root keeps nobody out", "[hostile]") {
  CHECK(run(1, alone(), [](Rank&) {
          const UniqueId id = open_root(20);
          const std::vector<Descriptor> crowd = silent_crowd(id.address);
          const double begin = now_s();
          const std::string wrong = meet_at(id, 3);
          ensure(wrong.empty(), wrong);
          ensure(now_s() - begin < 8, "a crowd held up the start");
        }) == "");
}

TEST_CASE("guests who know the secret and send nonsense", "[hostile]") {
  CHECK(run(1, alone(), start_with_another_size) == "");
  CHECK(run(1, alone(), start_beside_wrong_guests) == "");
  CHECK(run(1, alone(), start_with_a_cut_member) == "");
}

TEST_CASE("strangers at every port while ranks join and work", "[hostile]") {
  const int first = quiet_ports();
  Setup setup;
  setup.transport = "tcp";
  setup.limit_s = 60;
  setup.environment = {
      {"PITH_PORT_RANGE", std::to_string(first) + "-" + std::to_string(first + 39)}};
  CHECK(run(3, setup, [&](Rank& self) {
          std::unique_ptr<Raid> raid;
          if (self.rank == 1) raid = std::make_unique<Raid>(addresses_of(first, 12));
          join_and_work(self, [&] { return !raid || raid->answered() > 50; });
        }) == "");
}

TEST_CASE("noise at every port of every link while ranks join and work", "[hostile]") {
  for (Setup setup : between_processes()) {
    setup.may_be_killed = false;
    setup.limit_s = 60;
    INFO(name_of(setup));
    CHECK(run(3, setup, [](Rank& self) {
            const PortNoise noise;
            join_and_work(self, [&] { return noise.calls() > 50; });
          }) == "");
  }
}
