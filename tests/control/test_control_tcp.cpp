// The control plane's port: strangers, and members that send nonsense, while others work; and
// members that sleep.
#include <fmt/format.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "catch.hpp"
#include "control/control_node.hpp"
#include "control/tcp/control_tcp.hpp"
#include "tests/transport/own_sockets.hpp"
#include "tests/transport/unauthenticated_clients.hpp"

using namespace pith;
using namespace pith::test;

namespace {

constexpr std::uint64_t second = 1'000'000'000;
constexpr int ranks = 4;

Secret job_secret() {
  Secret secret{};
  secret[5] = std::byte{77};
  return secret;
}

using What = ControlPurpose::What;

Greeting greeting_of(int from, What what = What::begins, int number = 0) {
  return {"control", from, 0, ranks, ControlPurpose{what, number}.stream()};
}

// One rank's wire, and what it tells.
class End final : public ControlHandler {
 public:
  explicit End(int rank, double heartbeat_s = 10, Reconnect reconnect = Reconnect::never)
      : wire({rank, ranks, job_secret(), heartbeat_s, 10, {}, reconnect}) {
    address = *wire.listen("127.0.0.1");
  }
  void on_message(int from, std::string_view message) override {
    messages[from].emplace_back(message);
  }
  void on_lost(int rank, std::string_view how) override {
    ends[rank] += fmt::format("lost: {}", how);
  }
  void on_unreachable(int rank, std::string_view how) override {
    ends[rank] += fmt::format("unreachable: {}", how);
  }
  void on_hung_up(int rank) override { ends[rank] += "hung up"; }

  ControlTcp wire;
  std::string address;
  std::map<int, std::vector<std::string>> messages;
  std::map<int, std::string> ends;  // how each rank ended, as far as was told
};

// Ranks 0 and 1 of the job; 2 and 3 are played by the test.
class Job {
 public:
  explicit Job(double heartbeat_s = 10, Reconnect reconnect = Reconnect::never)
      : zero(0, heartbeat_s, reconnect), one(1, heartbeat_s, reconnect) {
    for (End* end : {&zero, &one}) end->wire.set_addresses({zero.address, one.address, "", ""});
  }
  ~Job() {
    one.wire.close(monotonic_ns());
    zero.wire.close(monotonic_ns());
  }
  bool drive_until(const std::function<bool()>& done, std::uint64_t limit_ns = 5 * second) {
    const std::uint64_t until = monotonic_ns() + limit_ns;
    while (!done()) {
      if (monotonic_ns() > until) return false;
      zero.wire.progress(zero);
      one.wire.progress(one);
      wait_for(zero.wire.descriptor(), POLLIN, monotonic_ns() + second / 1000);
    }
    return true;
  }
  // A hundred messages each way, in order.
  bool talk() {
    const std::size_t known = one.messages[0].size();
    std::vector<std::string> said;
    for (int i = 0; i < 100; ++i) {
      said.push_back(std::string(static_cast<std::size_t>(i * 7), 'x') + std::to_string(i));
      one.wire.send(0, said.back());
      if (!drive_until([&] { return zero.messages[1].size() == said.size(); })) return false;
      zero.wire.send(1, said.back());
    }
    if (!drive_until([&] { return one.messages[0].size() == known + said.size(); })) return false;
    const bool same = zero.messages[1] == said &&
                      std::equal(said.begin(), said.end(),
                                 one.messages[0].begin() + static_cast<std::ptrdiff_t>(known));
    zero.messages[1].clear();
    return same;
  }

  End zero;
  End one;
};

// A connection to rank 0 whose handshake is right.
Descriptor enter(Job& job, const Greeting& greeting) {
  Descriptor socket = call_port(job.zero.address);
  Handshake handshake = Handshake::connector(job_secret(), greeting);
  job.drive_until([&] {
    const Expected<Handshake::Want> want = handshake.step(socket.get());
    return !want || *want == Handshake::Want::done;
  });
  return socket;
}

Descriptor enter(Job& job, int from) { return enter(job, greeting_of(from)); }

bool is_closed(Job& job, const Descriptor& socket) {
  return job.drive_until([&] {
    char byte = 0;
    const ssize_t got = ::recv(socket.get(), &byte, 1, MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN);
  });
}

// All connections of this process with an end at the address: at this end, that one, or both.
void break_connections(const std::string& address, int which) {
  const int port = port_of(address);
  for (const int fd : sockets_at(port)) {
    const bool accepted = own_port(fd) == port;
    if (which % 3 == 2 || accepted == (which % 3 == 0)) ::shutdown(fd, SHUT_RDWR);
  }
}

std::string frame(std::uint32_t size, std::string_view bytes) {
  std::string text(reinterpret_cast<const char*>(&size), sizeof size);
  return text.append(bytes);
}

// Of a rank that starts alone.
class OneRank final : public Gatherer {
 public:
  Expected<std::vector<std::string>> gather(const std::string& mine) override {
    return std::vector{mine};
  }
  Error failure() const override { return {}; }
};

}  // namespace

TEST_CASE("a rank that the job does not have is refused", "[control][hostile]") {
  Job job;
  for (const int from : {0, ranks, 1'000'000}) {
    const Descriptor socket = enter(job, from);
    say(socket, frame(5, "hello"));
    CHECK(is_closed(job, socket));
  }
  CHECK(job.zero.messages.empty());
  CHECK(job.zero.ends.empty());
  CHECK(job.talk());
}

TEST_CASE("who observes a rank knows the job's secret, and is no rank", "[control][hostile]") {
  constexpr int observer = ControlTcp::observer;
  const Greeting greeting{"control", observer, 0, observer, 0};
  Job job;
  for (const Greeting& other :
       {Greeting{"control", observer, 0, ranks, 0}, Greeting{"control", 2, 0, observer, 0},
        Greeting{"control", 2, 0, ranks + 1, 0}}) {
    CHECK(is_closed(job, enter(job, other)));
  }
  const Descriptor stranger = call_port(job.zero.address);
  Handshake handshake = Handshake::connector(Secret{}, greeting);
  CHECK(job.drive_until([&] { return !handshake.step(stranger.get()); }));
  CHECK(handshake.refused());
  CHECK_FALSE(job.zero.wire.observers().any_ready());
  const Descriptor socket = enter(job, greeting);
  CHECK(job.drive_until([&] { return job.zero.wire.observers().any_ready(); }));
  job.zero.wire.observers().show("told", monotonic_ns());
  CHECK(hear_some(socket, 8) == frame(4, "told"));
  say(socket, frame(5, "hello"));
  CHECK(job.talk());
  CHECK(job.zero.messages.size() == 1);  // rank 1's alone
  CHECK(job.zero.ends.empty());
}

TEST_CASE("a member that sends no frames is lost, the others go on", "[control][hostile]") {
  struct Nonsense {
    std::string bytes;
    bool closes;
    std::string end;
  };
  const std::string too_long = "unreachable: it sent a control message that is too long";
  const Nonsense all[] = {
      {frame(control_message_bytes_max + 1, "x"), false, too_long},
      {frame(0xffffffff, "x"), false, too_long},
      {frame(1000, std::string(999, 'x')), true, "unreachable: its process has ended"},
      {frame(3, "yes") + std::string("\x05\x00", 2), true, "lost: its process has ended"},
      {"", true, "unreachable: its process has ended"},
      {std::string(100'000, '\xff'), false, too_long},
  };
  Job job;
  CHECK(job.talk());
  for (const Nonsense& nonsense : all) {
    Descriptor socket = enter(job, 3);
    say(socket, nonsense.bytes);
    if (nonsense.closes) socket.reset();
    CHECK(job.drive_until([&] { return job.zero.ends.contains(3); }));
    CHECK(job.zero.ends[3] == nonsense.end);
    job.zero.ends.clear();
    CHECK(job.talk());
    CHECK(job.zero.ends.empty());
    CHECK(job.one.ends.empty());
  }
}

TEST_CASE("a member that sends a message byte by byte is heard", "[control][hostile]") {
  Job job;
  const Descriptor socket = enter(job, 2);
  for (const char byte : frame(4, "slow")) {
    say(socket, {&byte, 1});
    job.zero.wire.progress(job.zero);
  }
  CHECK(job.drive_until([&] { return job.zero.messages.contains(2); }));
  CHECK(job.zero.messages[2] == std::vector<std::string>{"slow"});
  CHECK(job.talk());
}

// To the kernels its process has stopped: nobody reads, and its memory fills up.
TEST_CASE("a rank that does not read is not taken for a dead host", "[control][silence]") {
  constexpr std::size_t total = 16 << 20;
  const std::size_t bytes = GENERATE(std::size_t{17}, std::size_t{1500}, std::size_t{200'000});
  INFO("messages of " << bytes << " bytes");
  Job job(1);
  REQUIRE(job.talk());
  const std::size_t count = std::min<std::size_t>(total / bytes, 300'000);
  const std::uint64_t begin = monotonic_ns();
  for (std::size_t i = 0; i < count; ++i) job.zero.wire.send(1, std::string(bytes, 'x'));
  while (monotonic_ns() < begin + 4 * second) {
    job.zero.wire.send(1, std::string(bytes, 'x'));
    wait_for(job.zero.wire.descriptor(), POLLIN, monotonic_ns() + second / 20);
    job.zero.wire.progress(job.zero);
  }
  CHECK(job.zero.ends.empty());
  job.one.messages.clear();
  CHECK(job.drive_until([&] { return job.one.messages[0].size() >= count; }));
  CHECK(job.zero.ends.empty());
  CHECK(job.one.ends.empty());
}

namespace {

// Of this network namespace: what is sent while it is down goes nowhere, and nobody is told.
bool set_loopback(bool up) {
  const Descriptor socket(::socket(AF_INET, SOCK_DGRAM, 0));
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = up ? IFF_UP : 0;
  return ::ioctl(socket.get(), SIOCSIFFLAGS, &request) == 0;
}

enum class Outcome { right, cannot_try, cannot_talk, not_told, wrong_end, too_soon };

Outcome lose_a_host() {
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0 || !set_loopback(true)) {
    return Outcome::cannot_try;
  }
  Job job(1);
  if (!job.talk()) return Outcome::cannot_talk;
  if (!set_loopback(false)) return Outcome::cannot_try;
  const std::uint64_t begin = monotonic_ns();
  job.zero.wire.send(1, "is anybody there");
  if (!job.drive_until([&] { return !job.zero.ends.empty(); })) return Outcome::not_told;
  if (job.zero.ends[1] != "lost: its host does not answer") return Outcome::wrong_end;
  return monotonic_ns() < begin + second ? Outcome::too_soon : Outcome::right;
}

}  // namespace

TEST_CASE("a rank whose host vanishes while something is under way is lost", "[control][silence]") {
  const pid_t child = ::fork();  // for a network of its own
  if (child == 0) ::_exit(static_cast<int>(lose_a_host()));
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == static_cast<int>(Outcome::cannot_try)) {
    WARN("network namespaces are refused here");
    return;
  }
  CHECK(WEXITSTATUS(status) == static_cast<int>(Outcome::right));
}

TEST_CASE("the control plane's connection breaks while both ranks live", "[control][reconnect]") {
  const std::uint64_t allowed_ns = 5 * second;
  Job job(10, Reconnect::always);
  REQUIRE(job.talk());
  std::size_t begun = 0;
  std::vector<std::string> said;
  for (int round = 0; round < 40; ++round) {
    // Both ends are of this process: one, the other, or both break, with messages under way.
    for (int i = 0; i < 20; ++i) {
      said.push_back(std::string(static_cast<std::size_t>(i * 300), 'y') + std::to_string(begun++));
      job.one.wire.send(0, said.back());
      job.zero.wire.send(1, said.back());
      if (i == round % 20) break_connections(job.zero.address, round);
    }
    REQUIRE(
        job.drive_until([&] { return job.zero.messages[1].size() == said.size(); }, allowed_ns));
    const auto heard = [&] { return job.one.messages[0].size() == 100 + said.size(); };
    REQUIRE(job.drive_until(heard, allowed_ns));
  }
  CHECK(job.zero.messages[1] == said);
  CHECK(std::equal(said.begin(), said.end(), job.one.messages[0].begin() + 100));
  CHECK(job.zero.ends.empty());
  CHECK(job.one.ends.empty());
}

TEST_CASE("who has ended is not waited for by the control plane", "[control][reconnect]") {
  const int dies = GENERATE(0, 1);
  auto zero = std::make_unique<End>(0, 10, Reconnect::always);
  auto one = std::make_unique<End>(1, 10, Reconnect::always);
  for (End* end : {zero.get(), one.get()}) {
    end->wire.set_addresses({zero->address, one->address, "", ""});
  }
  const auto drive = [&](const std::function<bool()>& done) {
    const std::uint64_t until = monotonic_ns() + 3 * second;
    while (!done() && monotonic_ns() < until) {
      if (zero) zero->wire.progress(*zero);
      if (one) one->wire.progress(*one);
    }
    return done();
  };
  one->wire.send(0, "here");
  REQUIRE(drive([&] { return zero->messages[1].size() == 1; }));
  zero->wire.send(1, "and here");
  REQUIRE(drive([&] { return one->messages[0].size() == 1; }));
  (dies == 0 ? zero : one).reset();
  End& left = dies == 0 ? *one : *zero;
  left.wire.progress(left);  // no later than without another attempt
  REQUIRE(!left.ends.empty());
  CHECK(left.ends[dies].find("lost: its process has ended") == 0);
}

TEST_CASE("a connection goes on with the link of its number, and with no other",
          "[control][reconnect]") {
  Job job(10, Reconnect::always);
  const Descriptor link = enter(job, greeting_of(3, What::begins, 5));
  say(link, frame(2, "ab"));
  REQUIRE(job.drive_until([&] { return job.zero.messages[3].size() == 1; }));
  const TcpResumption::Greeting farewell = TcpResumption::farewell();
  const std::string goodbye(reinterpret_cast<const char*>(farewell.data()), farewell.size());
  const Descriptor other = enter(job, greeting_of(3, What::goes_on, 4));
  job.zero.wire.progress(job.zero);
  CHECK(hear_some(other, 100) == goodbye);
  say(link, frame(2, "cd"));
  CHECK(job.drive_until([&] { return job.zero.messages[3].size() == 2; }));
  const Descriptor again = enter(job, greeting_of(3, What::goes_on, 5));
  job.zero.wire.progress(job.zero);
  const std::string greeting = hear_some(again, 100);
  CHECK(greeting.size() == goodbye.size());
  CHECK(greeting != goodbye);
  CHECK(job.zero.ends.empty());
}

// Rank 3 lives and knows nothing of the link.
TEST_CASE("who asks for another connection gives up in time", "[control][reconnect]") {
  const bool says_so = GENERATE(true, false);
  Job job(1, Reconnect::always);
  const Descriptor listener = std::move(*listen_on("127.0.0.1"));
  const std::string address = format_address(*local_address(listener.get()));
  job.zero.wire.set_addresses({job.zero.address, job.one.address, "", address});
  Descriptor link = enter(job, greeting_of(3, What::begins, 2));
  say(link, frame(2, "ab"));
  REQUIRE(job.drive_until([&] { return job.zero.messages[3].size() == 1; }));
  link.reset();
  const Greeting asks{"control", 0, 3, ranks, ControlPurpose{What::asks, 2}.stream()};
  Descriptor asker;
  Handshake handshake;
  int asked = 0;
  const auto answer = [&] {
    if (!asker) {
      asker = std::move(*accept_one(listener.get()));
      handshake = Handshake::acceptor(job_secret(), asks);
    }
    if (!asker) return;
    const Expected<Handshake::Want> want = handshake.step(asker.get());
    if (want && *want != Handshake::Want::done) return;
    asked += want ? 1 : 0;
    const TcpResumption::Greeting farewell = TcpResumption::farewell();
    if (says_so) static_cast<void>(send_all(asker.get(), farewell, monotonic_ns()));
    asker.reset();
  };
  const bool is_told = job.drive_until([&] {
    answer();
    return job.zero.ends.contains(3);
  });
  CHECK(is_told);
  CHECK((says_so ? asked == 1 : asked > 1));
  CHECK(job.zero.ends[3] == (says_so ? "hung up" : "lost: does not answer"));
}

// What was said before and the goodbye arrive, however far the attempt has come.
TEST_CASE("who hangs up after a break says so over another connection", "[control][reconnect]") {
  const int turns = GENERATE(0, 1, 2);
  const bool closes = GENERATE(false, true);
  Job job(10, Reconnect::always);
  REQUIRE(job.talk());
  break_connections(job.zero.address, 1);
  for (int turn = 0; turn < turns; ++turn) job.one.wire.progress(job.one);
  job.one.wire.send(0, "last");
  std::thread closing;
  if (closes) {
    closing = std::thread([&] { job.one.wire.close(monotonic_ns() + 5 * second); });
  } else {
    job.one.wire.hang_up(0);
  }
  const std::uint64_t until = monotonic_ns() + 5 * second;
  while (job.zero.ends.empty() && monotonic_ns() < until) {
    job.zero.wire.progress(job.zero);
    if (!closes) job.one.wire.progress(job.one);
  }
  if (closes) closing.join();
  CHECK(job.zero.messages[1] == std::vector<std::string>{"last"});
  CHECK(job.zero.ends[1] == "hung up");
  CHECK(job.one.ends.empty());
}

TEST_CASE("who waits for a handshake's answer sleeps, whatever is queued", "[control][reconnect]") {
  Job job;
  job.one.wire.send(0, "queued");
  for (int turn = 0; turn < 2; ++turn) job.one.wire.progress(job.one);
  CHECK_FALSE(wait_for(job.one.wire.descriptor(), POLLIN, monotonic_ns() + second / 20));
  job.one.wire.send(0, "after it");
  CHECK(job.drive_until([&] { return job.zero.messages[1].size() == 2; }));
}

TEST_CASE("what ranks authenticate each other by is of one start", "[control]") {
  std::vector<Secret> secrets = {job_secret()};
  for (int start = 0; start < 2; ++start) {
    OneRank gatherer;
    const auto node = ControlNode::over_tcp(gatherer, "127.0.0.1", 0, 1, job_secret(), Settings());
    REQUIRE(node);
    for (const Secret& before : secrets) CHECK((*node)->secret() != before);
    secrets.push_back((*node)->secret());
  }
}
