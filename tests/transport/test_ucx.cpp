// UcxTransport over what UCX can use on any host: sockets on lo. UCX 1.13's shared memory does not
// notice a dead peer, and is refused.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>

#include "catch.hpp"
#include "port_noise.hpp"
#include "transport/ring_support.hpp"
#include "transport/two_ranks.hpp"
#include "transport/ucx_rank.hpp"

namespace {

using namespace pith_test;

// The first instructions of a function as they are now.
std::array<unsigned char, 16> code_of(const char* function) {
  std::array<unsigned char, 16> code{};
  std::memcpy(code.data(), dlsym(RTLD_DEFAULT, function), code.size());
  return code;
}
const auto munmap_at_start = code_of("munmap");

void walk_every_path(int rank, const Names& names, const UcxOptions& options, std::size_t longest) {
  UcxRank self(rank, names, options);
  self.must_be_connected();
  check_all(self, longest);
  leave(self);
}

constexpr std::uint32_t flood_count = 6000;
constexpr std::size_t flood_bytes = 10000;

// Sixty megabytes to a rank that does not want them yet.
void flood(UcxRank& self, const UcxOptions& options, std::atomic<bool>& seen) {
  std::vector<SendOp*> sent;
  ReceiveOp& word = self.receive(1, 2, 1);
  for (std::uint32_t i = 0; i < flood_count; ++i) {
    sent.push_back(&self.send(1, 100 + i, pattern(flood_bytes, i)));
  }
  self.wait(word);
  for (int i = 0; i < 2000; ++i) self.turn();
  const auto gone =
      std::count_if(sent.begin(), sent.end(), [](SendOp* op) { return op->remaining == 0; });
  // The mailbox's backlog and the window.
  const std::size_t bound = self.mailbox.backlog_limit + 2 * options.window_bytes;
  must(static_cast<std::size_t>(gone) * flood_bytes < bound, std::to_string(gone) + " went");
  must(gone > 10, "hardly anything went");
  seen = true;
  self.send(1, 3, pattern(1, 0));
  for (SendOp* op : sent) self.wait(*op);
  leave(self);
}

// Drives its transport, but waits for nothing at first.
void take_late(UcxRank& self, const std::atomic<bool>& seen) {
  for (int i = 0; i < 20000; ++i) self.ucx->progress();
  self.send(0, 2, pattern(1, 0));
  self.until([&] { return seen.load(); }, "the other rank's look");
  for (std::uint32_t i = 0; i < flood_count; ++i) {
    ReceiveOp& got = self.receive(0, 100 + i, flood_bytes);
    self.wait(got);
    must(same(got.data, pattern(flood_bytes, i)), "contents differ");
    got.data = {};
  }
  self.wait(self.receive(0, 3, 1));
  leave(self);
}

std::vector<std::size_t> small_sizes() {
  std::vector<std::size_t> sizes(60, 8);
  sizes.insert(sizes.end(), {0, 1, 1000, 9000, 60000});
  return sizes;
}

// One rank drives UCX at a time. Where a step fails both give up.
class Turns {
 public:
  void next() { ++step_; }
  void await(int step) const {
    const std::uint64_t limit = monotonic_ns() + 10 * second_ns;
    while (step_ < step && monotonic_ns() < limit) sched_yield();
    must(step_ >= step, "the other rank did not get to step " + std::to_string(step));
  }

 private:
  std::atomic<int> step_{0};
};

void send_to_the_absent(UcxRank& self, std::uint32_t first) {
  for (const std::size_t bytes : small_sizes()) {
    self.wait(self.send(1 - self.rank(), first, pattern(bytes, first)));
    ++first;
  }
}

void receive_from_the_absent(UcxRank& self, std::uint32_t first) {
  for (const std::size_t bytes : small_sizes()) {
    ReceiveOp& got = self.receive(1 - self.rank(), first, bytes);
    self.wait(got);
    must(same(got.data, pattern(bytes, first++)), "contents differ");
  }
}

// Each sends while the other does not drive UCX, and receives while the other does not.
void take_turns(UcxRank& self, Turns& turns) {
  if (self.rank() == 1) turns.await(1);
  send_to_the_absent(self, 100);
  turns.next();
  turns.await(self.rank() == 0 ? 2 : 3);
  receive_from_the_absent(self, 100);
  turns.next();
  if (self.rank() == 0) turns.await(4);
}

// What the sender was told is on its way comes without it, though the socket became full.
void fill_the_socket(UcxRank& self, std::size_t bytes, Turns& turns, std::atomic<unsigned>& told) {
  if (self.rank() == 1) {
    turns.await(1);
    for (std::uint32_t i = 0; i < told; ++i) self.wait(self.receive(0, i, bytes));
    turns.next();
    return turns.await(3);
  }
  std::vector<SendOp*> sent;
  for (std::size_t all = 0; all < std::size_t{8} << 20; all += bytes + 250) {
    sent.push_back(&self.send(1, static_cast<std::uint32_t>(sent.size()), pattern(bytes, 0)));
  }
  const auto gone = [&] {
    return std::count_if(sent.begin(), sent.end(), [](SendOp* op) { return op->remaining == 0; });
  };
  for (auto before = gone() - 1; before != gone();) {
    before = gone();
    for (const std::uint64_t end = monotonic_ns() + second_ns / 10; monotonic_ns() < end;) {
      self.turn();
    }
  }
  told = static_cast<unsigned>(gone());
  turns.next();
  turns.await(2);
  turns.next();
}

}  // namespace

TEST_CASE("ucx: two threads, every path", "[ucx]") {
  if (absent()) return;
  for (const char* ways : {"tcp", "all"}) {
    const Ways set(ways);
    INFO("UCX_TLS=" << ways);
    CHECK(run_threads([](int rank, const Names& names) {
            walk_every_path(rank, names, {}, std::size_t{8} << 20);
          }) == "");
  }
}

TEST_CASE("ucx: two processes, every path, by rendezvous too", "[ucx]") {
  if (absent()) return;
  for (const char* ways : {"tcp", "all"}) {
    const Ways set(ways);
    for (const std::size_t rendezvous : {std::size_t{0}, std::size_t{1000}}) {
      INFO("UCX_TLS=" << ways << ", rendezvous from " << rendezvous);
      CHECK(run_forked([rendezvous](int rank, const Names& names) {
              UcxOptions options;
              options.rendezvous_bytes = rendezvous;
              walk_every_path(rank, names, options, std::size_t{3} << 20);
            }) == "");
    }
  }
}

TEST_CASE("ucx: five ranks, everyone to everyone", "[ucx]") {
  if (absent()) return;
  constexpr int ranks = 5;
  const Ways set("all");
  std::vector<std::string> addresses(ranks);
  std::vector<std::string> failures(ranks);
  std::atomic<int> there{0};
  std::atomic<int> done{0};
  const auto live = [&](Rank& self) {
    const auto me = static_cast<std::size_t>(self.rank());
    const std::unique_ptr<UcxTransport> ucx = make(self, ranks, {});
    self.transport = ucx.get();
    addresses[me] = *ucx->listen();
    ++there;
    while (there < ranks) sched_yield();
    std::vector<std::uint8_t> use(ranks, 1);
    const Error connected = ucx->connect(addresses, use, monotonic_ns() + 20 * second_ns);
    must(!connected, connected.message());
    check_everyone_to_everyone(self, ranks, 90000);
    ++done;
    self.until([&] { return done == ranks; }, "the others");
    ucx->close(monotonic_ns() + 5 * second_ns);
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      failures[static_cast<std::size_t>(rank)] = guarded([&] {
        Rank self(rank, ranks);
        live(self);
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& failure : failures) CHECK(failure == "");
}

TEST_CASE("ucx: a rank that takes nothing is not flooded", "[ucx]") {
  if (absent()) return;
  const Ways set("tcp");
  UcxOptions options;
  options.rendezvous_bytes = GENERATE(std::size_t{0}, std::size_t{5000});
  std::atomic<bool> seen{false};
  CHECK(run_threads([&](int rank, const Names& names) {
          UcxRank self(rank, names, options);
          self.must_be_connected();
          rank == 0 ? flood(self, options, seen) : take_late(self, seen);
        }) == "");
}

TEST_CASE("ucx: a small message needs its sender only", "[ucx]") {
  if (absent()) return;
  for (const char* ways : {"tcp", "all"}) {
    const Ways set(ways);
    INFO("UCX_TLS=" << ways);
    Turns turns;
    CHECK(run_threads([&](int rank, const Names& names) {
            UcxRank self(rank, names);
            self.must_be_connected();
            take_turns(self, turns);
            leave(self);
          }) == "");
  }
}

TEST_CASE("ucx: a send that has ended needs its sender no more", "[ucx]") {
  if (absent()) return;
  const Ways set("tcp");
  UcxOptions options;
  options.window_bytes = std::size_t{64} << 20;
  const auto bytes = GENERATE(std::size_t{0}, std::size_t{1000}, std::size_t{50000});
  INFO(bytes << " bytes");
  Turns turns;
  std::atomic<unsigned> told{0};
  CHECK(run_threads([&](int rank, const Names& names) {
          UcxRank self(rank, names, options);
          self.must_be_connected();
          fill_the_socket(self, bytes, turns, told);
        }) == "");
}

TEST_CASE("ucx: who leaves does not wait for those that compute", "[ucx]") {
  if (absent()) return;
  const Ways set("tcp");
  Turns turns;
  CHECK(run_threads([&](int rank, const Names& names) {
          UcxRank self(rank, names);
          self.must_be_connected();
          if (rank == 1) return turns.await(1);
          const std::uint64_t begin = monotonic_ns();
          self.ucx->close(begin + 9 * second_ns);
          turns.next();
          must(monotonic_ns() - begin < 5 * second_ns, "waited");
        }) == "");
}

TEST_CASE("ucx: a killed peer ends everything that waits for it", "[ucx]") {
  if (absent()) return;
  const Ways set("all");
  const auto body = [](int rank, const Names& names) {
    UcxRank self(rank, names);
    self.must_be_connected();
    if (rank == 1) {
      self.meet(0, 2);
      kill(getpid(), SIGKILL);
    }
    self.meet(1, 2);
    SendOp& pending = self.send(1, 3, pattern(std::size_t{64} << 20, 1));
    ReceiveOp& never = self.receive(1, 4, 10);
    self.until([&] { return static_cast<bool>(self.lost); }, "loss");
    must(self.lost.rank() == 1 && self.lost.code() == Code::remote, self.lost.message());
    must(std::string(self.lost.message()).starts_with("rank 1 is lost: "), self.lost.message());
    must(pending.remaining == 0 && pending.send.error.rank() == 1, "sent to the dead");
    must(never.remaining == 1, "the mailbox is its owner's");
    SendOp& later = self.send(1, 5, pattern(10, 1));
    must(later.remaining == 0 && later.send.error.rank() == 1, "a later send waits for ever");
    for (int i = 0; i < 1000; ++i) self.turn();
    must(self.losses == 1, "not reported once");
  };
  CHECK(run_forked_to_die(body) == "");
}

TEST_CASE("ucx: a rank that computes for long is not lost", "[ucx]") {
  if (absent()) return;
  const Ways set("tcp");
  setenv("UCX_KEEPALIVE_INTERVAL", "50ms", 1);
  const std::string outcome = run_threads([](int rank, const Names& names) {
    UcxRank self(rank, names);
    self.must_be_connected();
    const std::vector<std::byte> data = pattern(std::size_t{8} << 20, 1);
    if (rank == 1) {
      poll(nullptr, 0, 1000);
      ReceiveOp& got = self.receive(0, 1, data.size());
      self.wait(got);
      must(got.data == data, "contents differ");
    } else {
      self.wait(self.send(1, 1, data));
    }
    leave(self);
  });
  unsetenv("UCX_KEEPALIVE_INTERVAL");
  CHECK(outcome == "");
}

TEST_CASE("ucx: a peer that leaves in order is missed only where something waits", "[ucx]") {
  if (absent()) return;
  const Ways set("tcp");
  CHECK(run_threads([](int rank, const Names& names) {
          UcxRank self(rank, names);
          self.must_be_connected();
          if (rank == 1) {
            // More than the mailbox keeps of a peer unasked: the goodbye waits behind it.
            std::vector<SendOp*> sent;
            for (std::uint32_t i = 0; i < 70; ++i) {
              sent.push_back(&self.send(0, 10 + i, pattern(20000, i)));
            }
            for (SendOp* op : sent) self.wait(*op);
            return self.ucx->close(monotonic_ns() + second_ns);
          }
          const std::uint64_t until = monotonic_ns() + second_ns / 2;
          while (monotonic_ns() < until) self.turn();
          must(self.losses == 0, "an orderly end was taken for a loss");
          for (std::uint32_t i = 0; i < 70; ++i) {
            ReceiveOp& got = self.receive(1, 10 + i, 20000);
            self.wait(got);
            must(same(got.data, pattern(20000, i)), "contents differ");
          }
          for (int i = 0; i < 1000; ++i) self.turn();
          must(self.losses == 0, "an orderly end was taken for a loss");
          self.receive(1, 99, 10);
          self.until([&] { return self.losses != 0; }, "loss");
          must(self.losses == 1 && self.lost.rank() == 1, self.lost.message());
        }) == "");
}

TEST_CASE("ucx: strangers are dropped", "[ucx]") {
  if (absent()) return;
  const Ways set("tcp");
  CHECK(run_threads([](int rank, const Names& names) {
          UcxRank self(rank, names, {}, static_cast<std::byte>(rank), second_ns / 2);
          // The one that gives up last may see the other one go.
          must(static_cast<bool>(self.connected), "talked to a stranger");
          must(self.connected.rank() == 1 - rank, "names another rank");
          must(self.ucx->unauthenticated() != 0, "heard nobody");
        }) == "");
}

TEST_CASE("ucx: noise at the ports, while ranks meet and talk", "[ucx]") {
  if (absent()) return;
  const Ways set("tcp");
  pith::test::PortNoise noise;
  do {  // on a busy machine it may have hardly begun when they are done
    CHECK(run_threads([](int rank, const Names& names) {
            walk_every_path(rank, names, {}, std::size_t{3} << 20);
          }) == "");
  } while (noise.calls() <= 20);
}

TEST_CASE("ucx: nobody patches munmap", "[ucx]") {
  if (absent()) return;
  CHECK(code_of("munmap") == munmap_at_start);
  CHECK(std::getenv("UCX_MEM_EVENTS") == nullptr);
}

TEST_CASE("ucx: what cannot be used says why", "[ucx]") {
  if (absent()) return;
  Rank alone(0, 2);
  const Ways none("no_such_way");
  const auto made = UcxTransport::create(alone.scheduler, alone.mailbox, 0, 2, {}, {});
  REQUIRE_FALSE(made);
  CHECK(std::string(made.error().message()).find("UCX_TLS") != std::string::npos);
  CHECK(pith::ucx_support("127.0.0.1").why_not);
  const Ways memory("self,posix");
  CHECK(run_threads([](int rank, const Names& names) {
          UcxRank self(rank, names, {}, {}, second_ns / 2);
          must(std::string(self.connected.message()).find("UCX_TLS") != std::string::npos,
               self.connected.message());
        }) == "");
}
