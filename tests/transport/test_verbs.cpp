// VerbsTransport over a software network that keeps the rules of InfiniBand: see fake_verbs.hpp.
// Real devices are tested in a virtual machine: tests/rdma.
#include <algorithm>

#include "catch.hpp"
#include "tests/sanitized.hpp"
#include "tests/transport/verbs_rank.hpp"
#include "transport/verbs/verbs_frames.hpp"
#include "transport/verbs/verbs_memory.hpp"

namespace {

using namespace pith_test;

VerbsOptions all_in_frames() {
  VerbsOptions options;
  options.cache_bytes = 0;
  return options;
}

// `longest` is cut short under a sanitizer.
std::string walk(const VerbsOptions& of_0, const VerbsOptions& of_1, std::size_t longest) {
  if (pith::test::sanitized) longest = std::min(longest, std::size_t{256} << 10);
  return run_threads([&](int rank, const Names& names) {
    VerbsWish wish;
    if (FakeVerbs::instance().devices > 1) wish.devices = "^none";
    VerbsRank self(rank, names, rank == 0 ? of_0 : of_1, wish);
    check_all(self, longest);
    self.leave();
  });
}

}  // namespace

TEST_CASE("verbs: every path, by writes and by frames", "[verbs]") {
  const CleanNetwork clean;
  SECTION("as it is") { CHECK(walk(written_from(), written_from(), std::size_t{8} << 20) == ""); }
  SECTION("nearly all by writes") {
    CHECK(walk(written_from(100), written_from(100), std::size_t{3} << 20) == "");
  }
  SECTION("nothing is registered") {
    CHECK(walk(all_in_frames(), all_in_frames(), std::size_t{1} << 20) == "");
  }
  SECTION("one rank registers nothing") {
    CHECK(walk(written_from(100), all_in_frames(), std::size_t{1} << 20) == "");
  }
  SECTION("a device that inlines nothing, and writes little at once") {
    FakeVerbs::instance().inlined = 0;
    FakeVerbs::instance().request_bytes = 5000;
    CHECK(walk(written_from(100), written_from(100), std::size_t{1} << 20) == "");
  }
  SECTION("three ports") {
    FakeVerbs::instance().devices = 3;
    CHECK(walk(written_from(3000), written_from(3000), std::size_t{8} << 20) == "");
  }
  SECTION("a slow network") {
    FakeVerbs::instance().requests_a_look = 1;
    CHECK(walk(written_from(1000), written_from(1000), std::size_t{1} << 20) == "");
  }
  SECTION("a narrow window") {
    VerbsOptions narrow = written_from(5000);
    narrow.window = 5;
    CHECK(walk(narrow, narrow, std::size_t{1} << 20) == "");
  }
}

TEST_CASE("verbs: many messages of all lengths are on their way at once", "[verbs]") {
  const CleanNetwork clean;
  // So that there are more requests than a connection takes.
  FakeVerbs::instance().request_bytes = 1000;
  FakeVerbs::instance().requests_a_look = 40;
  CHECK(run_threads([](int rank, const Names& names) {
          VerbsRank self(rank, names, written_from(2000));
          const int peer = 1 - rank;
          constexpr std::uint32_t count = 200;
          std::vector<SendOp*> sent;
          std::vector<ReceiveOp*> got;
          for (std::uint32_t i = 0; i < count; ++i) {
            sent.push_back(&self.send(peer, 100 + i, pattern(i * 331, i)));
          }
          for (std::uint32_t i = count; i-- > 0;) {
            got.push_back(&self.receive(peer, 100 + i, i * 331));
          }
          std::size_t others = 0;
          for (ReceiveOp* op : got) {
            // Takes completions without acting on them, and sends meanwhile.
            const auto is_there = [&] {
              self.transport->arm();
              if (others < 1000) sent.push_back(&self.send(peer, 90, {}));
              others = std::min<std::size_t>(others + 1, 1000);
              return op->remaining == 0;
            };
            self.until(is_there, "receive");
            const std::uint32_t i = op->receive.tag.call - 100;
            must(same(op->data, pattern(i * 331, i)), "contents differ");
          }
          sent.push_back(&self.send(peer, 91, pattern(others, 1)));
          ReceiveOp& told = self.receive(peer, 91, 1000);
          self.wait(told);
          for (std::size_t i = 0; i < told.receive.length; ++i) {
            self.wait(self.receive(peer, 90, 0));
          }
          for (SendOp* op : sent) self.wait(*op);
          self.leave();
        }) == "");
}

namespace {

constexpr std::size_t doomed_bytes = std::size_t{4} << 20;

// The receiver gives its memory up while the sender writes there; another call goes on.
void abort_receiver(VerbsRank& self, int turns) {
  Doomed doomed(doomed_bytes);
  const std::vector<std::byte> before = doomed.data;
  doomed.prepare(doomed.receive, 1);
  doomed.receive.tag = {doomed.comm.id, 0, 0, 0};
  doomed.receive.into = doomed.data.data();
  doomed.receive.room = doomed_bytes;
  must(!self.mailbox.start(doomed.receive), "it was there");
  ReceiveOp& other = self.receive(1, 5, doomed_bytes);
  for (int i = 0; i < turns; ++i) self.turn();
  const bool ended = doomed.remaining == 0;
  doomed.revoke(self);
  std::fill(doomed.data.begin(), doomed.data.end(), std::byte{7});
  self.wait(other);
  must(same(other.data, pattern(doomed_bytes, 5)), "the other call's contents differ");
  self.meet(1, 6);
  must(same(doomed.data, before), "memory of an ended call was written");
  // What ends in order stays registered for the next call.
  must(ended || FakeVerbs::registered(doomed.data.data() + doomed_bytes / 2) == 0,
       "the key of an aborted call is still valid");
}

void send_to_aborted(VerbsRank& self) {
  Doomed doomed(doomed_bytes);
  std::fill(doomed.data.begin(), doomed.data.end(), std::byte{9});
  doomed.prepare(doomed.send, 0);
  doomed.send.header.comm = doomed.comm.id;
  doomed.send.header.length = doomed_bytes;
  doomed.send.data = doomed.data.data();
  must(!self.transport->start(doomed.send), "it was gone at once");
  SendOp& other = self.send(0, 5, pattern(doomed_bytes, 5));
  self.wait(other);
  self.meet(0, 6);
  self.until([&] { return doomed.remaining == 0; }, "the end of a send that nobody wants");
}

// The sender gives up while it writes.
void abort_sender(VerbsRank& self, int turns) {
  Doomed doomed(doomed_bytes);
  doomed.prepare(doomed.send, 0);
  doomed.send.header.comm = doomed.comm.id;
  doomed.send.header.length = doomed_bytes;
  doomed.send.data = doomed.data.data();
  static_cast<void>(self.transport->start(doomed.send));
  SendOp& other = self.send(0, 5, pattern(doomed_bytes, 5));
  for (int i = 0; i < turns; ++i) self.turn();
  doomed.revoke(self);
  std::fill(doomed.data.begin(), doomed.data.end(), std::byte{0});
  self.wait(other);
  self.meet(0, 6);
}

void receive_from_aborted(VerbsRank& self) {
  Doomed doomed(doomed_bytes);
  doomed.prepare(doomed.receive, 1);
  doomed.receive.tag = {doomed.comm.id, 0, 0, 0};
  doomed.receive.into = doomed.data.data();
  doomed.receive.room = doomed_bytes;
  const bool complete = self.mailbox.start(doomed.receive);
  ReceiveOp& other = self.receive(1, 5, doomed_bytes);
  self.wait(other);
  must(same(other.data, pattern(doomed_bytes, 5)), "the other call's contents differ");
  self.meet(1, 6);
  if (!complete && doomed.remaining != 0) doomed.revoke(self);
}

}  // namespace

TEST_CASE("verbs: an aborted call's memory is left alone, other calls go on", "[verbs]") {
  const CleanNetwork clean;
  FakeVerbs::instance().request_bytes = 64 << 10;
  FakeVerbs::instance().requests_a_look = 2;
  const int turns = GENERATE(0, 3, 10, 20, 40, 80);
  if (pith::test::sanitized && turns % 20 != 0) return;
  INFO("after " << turns << " turns");
  SECTION("by the receiver") {
    CHECK(run_threads([&](int rank, const Names& names) {
            VerbsRank self(rank, names, written_from());
            self.meet(1 - rank, 1);
            rank == 0 ? abort_receiver(self, turns) : send_to_aborted(self);
            self.leave();
          }) == "");
  }
  SECTION("by the sender") {
    CHECK(run_threads([&](int rank, const Names& names) {
            VerbsRank self(rank, names, written_from());
            self.meet(1 - rank, 1);
            rank == 1 ? abort_sender(self, turns) : receive_from_aborted(self);
            self.leave();
          }) == "");
  }
}

TEST_CASE("verbs: data connections that break start anew", "[verbs]") {
  const CleanNetwork clean;
  FakeVerbs::instance().devices = 2;
  FakeVerbs::instance().request_bytes = 64 << 10;
  FakeVerbs::instance().requests_a_look = 3;
  constexpr std::uint32_t count = 24;
  constexpr std::size_t bytes = std::size_t{1} << 20;
  CHECK(run_threads([&](int rank, const Names& names) {
          VerbsWish wish;
          wish.devices = "^none";
          VerbsRank self(rank, names, written_from(), wish);
          const int peer = 1 - rank;
          std::vector<SendOp*> sent;
          std::vector<ReceiveOp*> got;
          for (std::uint32_t i = 0; i < count; ++i) {
            sent.push_back(&self.send(peer, 100 + i, pattern(bytes, i)));
            got.push_back(&self.receive(peer, 100 + i, bytes));
          }
          for (std::uint32_t i = 0; i < count; ++i) {
            self.wait(*got[i]);
            must(same(got[i]->data, pattern(bytes, i)), "contents differ");
            if (rank == 0 && i % 6 == 2) FakeVerbs::break_pairs();
          }
          for (SendOp* op : sent) self.wait(*op);
          self.leave();
        }) == "");
}

TEST_CASE("verbs: a peer that is gone ends everything that waits for it", "[verbs]") {
  const CleanNetwork clean;
  CHECK(run_threads([](int rank, const Names& names) {
          VerbsRank self(rank, names, written_from());
          self.meet(1 - rank, 2);
          if (rank == 1) return self.verbs.reset();  // as its kernel does where it is killed
          SendOp& pending = self.send(1, 3, pattern(std::size_t{8} << 20, 1));
          ReceiveOp& never = self.receive(1, 4, 10);
          self.await_loss();
          must(self.lost.rank() == 1 && self.lost.code() == Code::remote, self.lost.message());
          must(std::string(self.lost.message()).starts_with("rank 1 is lost: "),
               self.lost.message());
          must(pending.remaining == 0 && pending.send.error.rank() == 1, "sent to the dead");
          must(never.remaining == 1, "the mailbox is its owner's");
          SendOp& later = self.send(1, 5, pattern(10, 1));
          must(later.remaining == 0 && later.send.error.rank() == 1, "a later send waits");
          for (int i = 0; i < 100; ++i) self.turn();
          must(self.losses == 1, "not reported once");
        }) == "");
}

TEST_CASE("verbs: a receive alone finds out that its peer is gone", "[verbs]") {
  const CleanNetwork clean;
  FakeVerbs::instance().gives_up_ns = 1000000;
  CHECK(run_threads([](int rank, const Names& names) {
          VerbsRank self(rank, names, written_from());
          self.meet(1 - rank, 2);
          if (rank == 1) return self.verbs.reset();
          self.receive(1, 4, 10);
          self.await_loss();
        }) == "");
}

TEST_CASE("verbs: a peer that leaves in order is missed only where something waits", "[verbs]") {
  const CleanNetwork clean;
  CHECK(run_threads([](int rank, const Names& names) {
          VerbsRank self(rank, names, written_from());
          if (rank == 1) {
            // More than the mailbox keeps of a peer unasked: the goodbye waits behind it.
            std::vector<SendOp*> sent;
            for (std::uint32_t i = 0; i < 70; ++i) {
              sent.push_back(&self.send(0, 10 + i, pattern(20000, i)));
            }
            for (SendOp* op : sent) self.wait(*op);
            return self.verbs->close(monotonic_ns() + second_ns);
          }
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

TEST_CASE("verbs: memory stays registered until it leaves or there is too much", "[verbs]") {
  const CleanNetwork clean;
  auto rails = pith::VerbsRail::open_all(FakeVerbs::library(), {});
  REQUIRE(rails);
  constexpr std::size_t page = 4096;
  pith::VerbsMemory memory(FakeVerbs::library(), *rails, 8 * page);
  std::vector<std::byte> data(20 * page);
  // Page boundaries, so that each registration has the pages that it seems to have.
  const auto at = reinterpret_cast<std::uintptr_t>(data.data());
  const std::byte* base = data.data() + (page - at % page) % page;

  pith::VerbsRegion* first = memory.acquire(base, 2 * page, true);
  REQUIRE(first);
  CHECK(memory.acquire(base + 100, page, true) == first);
  CHECK(memory.regions() == 1);
  SECTION("what leaves is registered again, the old one is given up when it is not used") {
    memory.leaves(base + page, page);
    pith::VerbsRegion* again = memory.acquire(base, 2 * page, true);
    CHECK(again != first);
    CHECK(memory.regions() == 2);
    memory.release(*first);
    memory.release(*first);
    CHECK(memory.regions() == 1);
    memory.release(*again);
  }
  SECTION("what is not used makes room") {
    CHECK_FALSE(memory.acquire(base + 4 * page, 7 * page, true));
    memory.release(*first);
    memory.release(*first);
    pith::VerbsRegion* second = memory.acquire(base + 4 * page, 7 * page, true);
    REQUIRE(second);
    CHECK(memory.bytes() == 7 * page);
    memory.release(*second);
  }
  SECTION("too much is refused") {
    CHECK_FALSE(memory.acquire(base, 9 * page, true));
    memory.release(*first);
    memory.release(*first);
  }
  SECTION("a device that refuses") {
    memory.release(*first);
    memory.release(*first);
    FakeVerbs::instance().registers = false;
    FakeVerbs::instance().refusal = EFAULT;
    CHECK_FALSE(memory.acquire(base + 4 * page, page, true));
    CHECK(memory.regions() == 1);
    // Too much is registered, it says.
    FakeVerbs::instance().refusal = ENOMEM;
    CHECK_FALSE(memory.acquire(base + 4 * page, page, true));
    CHECK(memory.regions() == 0);
  }
}

TEST_CASE("verbs: frames and addresses of a peer are checked", "[verbs]") {
  using pith::VerbsAddress;
  using pith::VerbsHead;
  using pith::VerbsKind;
  VerbsAddress address;
  address.window = 9;
  address.rails.resize(2);
  address.ends.resize(3);
  for (VerbsAddress::Ends& ends : address.ends) {
    ends.control = {5, 6};
    ends.data = {{7, 8}, {9, 10}};
  }
  const std::string bytes = address.pack();
  const auto back = VerbsAddress::unpack(bytes, 2);
  REQUIRE(back);
  CHECK(back->window == 9);
  CHECK(back->ends[0].data[1].number == 9);
  CHECK_FALSE(VerbsAddress::unpack(bytes, 3));
  for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
    CHECK_FALSE(VerbsAddress::unpack(std::string_view(bytes).substr(0, cut), 0));
  }

  VerbsHead head;
  head.kind = VerbsKind::message;
  head.header.length = 10;
  CHECK(fault_of(head, 10) == nullptr);
  CHECK(fault_of(head, 9) != nullptr);
  head.kind = VerbsKind::piece;
  head.offset = 8;
  CHECK(fault_of(head, 2) == nullptr);
  CHECK(fault_of(head, 3) != nullptr);
  CHECK(fault_of(head, 0) != nullptr);
  head.kind = VerbsKind::announce;
  CHECK(fault_of(head, 0) == nullptr);
  CHECK(fault_of(head, 1) != nullptr);
  head.kind = VerbsKind::grant;
  CHECK(fault_of(head, sizeof(pith::VerbsKeys)) == nullptr);
  CHECK(fault_of(head, 0) != nullptr);
  head.kind = static_cast<VerbsKind>(0);
  CHECK(fault_of(head, 0) != nullptr);
  head.kind = static_cast<VerbsKind>(200);
  CHECK(fault_of(head, 0) != nullptr);
  head.version = 99;
  CHECK(fault_of(head, 0) != nullptr);
}
