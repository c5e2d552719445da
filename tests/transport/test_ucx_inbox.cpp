// UcxInbox without UCX: order, pieces that must wait, garbage.
#include <random>
#include <set>

#include "catch.hpp"
#include "transport/ring_support.hpp"
#include "transport/ucx/ucx_inbox.hpp"

namespace {

using namespace pith_test;
using pith::ucx_piece_max;
using pith::UcxArrival;
using pith::UcxData;
using pith::UcxHead;
using pith::UcxInbox;
using pith::UcxKind;
using pith::UcxSlots;

// Counts what was left with the inbox and what came back.
struct Data final : UcxData {
  void release_data(void* message) override { must(kept.erase(message) == 1, "released twice"); }
  std::set<void*> kept;
};

// The inbox of rank 0 for what rank 1 sends.
struct Inbound : Rank {
  Inbound() : Rank(0, 2), inbox(mailbox, slots, data, 1) {}

  const char* arrive(const UcxHead& head, std::vector<std::byte>& payload, bool may_keep,
                     bool rendezvous = false) {
    UcxArrival arrival;
    arrival.head = head;
    arrival.bytes = payload.size();
    arrival.may_keep = may_keep && !rendezvous;
    arrival.rendezvous = rendezvous;
    arrival.data = rendezvous ? nullptr : payload.data();
    arrival.message = payload.data();
    // UCX keeps nothing for us before arrive() has returned.
    const UcxInbox::Outcome outcome = inbox.arrive(arrival);
    must(!outcome.kept || may_keep || rendezvous, "kept what may not be kept");
    if (outcome.kept) data.kept.insert(payload.data());
    return outcome.fault;
  }

  UcxSlots slots;
  Data data;
  UcxInbox inbox;
};

UcxHead head_of(std::uint32_t sequence, std::uint32_t call, std::size_t length,
                std::size_t offset = 0) {
  UcxHead head;
  head.sequence = sequence;
  head.offset = static_cast<std::uint32_t>(offset);
  head.header.comm = 1;
  head.header.call = call;
  head.header.length = static_cast<std::uint32_t>(length);
  return head;
}

}  // namespace

TEST_CASE("ucx inbox: pieces in any order make messages in theirs", "[ucx]") {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    Inbound self;
    std::vector<ReceiveOp*> got;
    std::vector<std::pair<UcxHead, std::vector<std::byte>>> pieces;
    // Equal tags: only their order tells them apart.
    for (std::uint32_t i = 0; i < 8; ++i) {
      const std::size_t length = i % 3 == 2 ? 3 * ucx_piece_max + 5 : i * 1000;
      const std::vector<std::byte> whole = pattern(length, i);
      std::size_t at = 0;
      do {
        const std::size_t bytes = std::min(ucx_piece_max, length - at);
        const auto from = whole.begin() + static_cast<std::ptrdiff_t>(at);
        pieces.emplace_back(
            head_of(static_cast<std::uint32_t>(pieces.size()), 7, length, at),
            std::vector<std::byte>(from, from + static_cast<std::ptrdiff_t>(bytes)));
        at += bytes;
      } while (at < length);
      if (round % 2 == 0) got.push_back(&self.receive(1, 7, length));
    }
    std::shuffle(pieces.begin(), pieces.end(), random);
    for (auto& [head, payload] : pieces) {
      const char* fault =
          self.arrive(head, payload, random() % 2 == 0, !payload.empty() && random() % 3 == 0);
      REQUIRE(fault == nullptr);
      void* message = nullptr;
      while (UcxInbox::Held* held = self.inbox.next_fetch(message)) {
        std::memcpy(held->slot->data.get(), message, held->bytes);
        self.data.kept.erase(message);
        UcxInbox::fetched(*held, true);
      }
      self.inbox.pump(fault);
      REQUIRE(fault == nullptr);
    }
    for (std::uint32_t i = 0; i < 8 && round % 2 != 0; ++i) {
      got.push_back(&self.receive(1, 7, i % 3 == 2 ? 3 * ucx_piece_max + 5 : i * 1000));
      const char* fault = nullptr;
      self.inbox.pump(fault);
    }
    for (std::uint32_t i = 0; i < 8; ++i) {
      REQUIRE(got[i]->remaining == 0);
      REQUIRE(same(got[i]->data, pattern(got[i]->data.size(), i)));
    }
    CHECK(self.inbox.empty());
    CHECK(self.data.kept.empty());
    CHECK(self.slots.out() == 0);
  }
}

TEST_CASE("ucx inbox: what the mailbox does not accept waits, and is dropped with its peer",
          "[ucx]") {
  Inbound self;
  std::vector<std::byte> payload(50000);
  std::vector<std::vector<std::byte>> all(60, payload);
  for (std::uint32_t i = 0; i < 60; ++i) {
    REQUIRE(self.arrive(head_of(i, i, payload.size()), all[i], true) == nullptr);
  }
  CHECK(self.inbox.take_cost() < self.mailbox.backlog_limit + 2 * payload.size());
  CHECK_FALSE(self.inbox.can_pump());
  // One that is waited for makes room for all before it.
  ReceiveOp& last = self.receive(1, 59, payload.size());
  const char* fault = nullptr;
  self.inbox.pump(fault);
  CHECK(last.remaining == 0);
  self.mailbox.forget(1);
  UcxHead late = head_of(61, 61, payload.size());
  REQUIRE(self.arrive(late, payload, true) == nullptr);
  self.inbox.abandon(Error(Code::remote, "gone", 1));
  CHECK(self.data.kept.empty());
  CHECK(self.slots.out() == 0);
}

TEST_CASE("ucx inbox: what is announced is fetched when it is wanted, in whatever order", "[ucx]") {
  Inbound self;
  std::vector<std::vector<std::byte>> all;
  for (std::uint32_t i = 0; i < 6; ++i) all.push_back(pattern(100000 + i, i));
  const auto announce = [&](std::uint32_t i) {
    UcxHead head = head_of(i, i, all[i].size());
    head.kind = UcxKind::direct;
    REQUIRE(pith::fault_of(head, all[i].size()) == nullptr);
    REQUIRE(self.arrive(head, all[i], false, true) == nullptr);
  };
  const auto fetch = [&](bool good) {
    void* message = nullptr;
    UcxInbox::Held* held = self.inbox.next_wanted(message);
    REQUIRE(held);
    self.data.kept.erase(message);
    std::memcpy(held->announced->data, message, held->bytes);
    UcxInbox::landed(*held, good);
  };
  ReceiveOp& first = self.receive(1, 0, all[0].size());
  for (const std::uint32_t i : {1u, 0u, 2u, 3u, 4u, 5u}) announce(i);
  const char* fault = nullptr;
  self.inbox.pump(fault);
  REQUIRE(fault == nullptr);
  CHECK(self.inbox.take_cost() == 6 * pith::ucx_cost(0));
  ReceiveOp& third = self.receive(1, 2, all[2].size());
  ReceiveOp& second = self.receive(1, 1, all[1].size());
  for (int i = 0; i < 3; ++i) fetch(true);
  void* none = nullptr;
  CHECK(self.inbox.next_wanted(none) == nullptr);
  CHECK((first.data == all[0] && second.data == all[1] && third.data == all[2]));

  ReceiveOp& failed = self.receive(1, 3, all[3].size());
  ReceiveOp& late = self.receive(1, 4, all[4].size());
  fetch(false);
  void* message = nullptr;
  UcxInbox::Held* on_its_way = self.inbox.next_wanted(message);
  REQUIRE(on_its_way);
  self.data.kept.erase(message);
  CHECK_FALSE(self.inbox.empty());
  self.inbox.abandon(Error(Code::remote, "gone", 1));
  CHECK(failed.remaining == 0);
  CHECK(late.remaining == 1);
  UcxInbox::landed(*on_its_way, false);
  CHECK(late.remaining == 0);
  CHECK(late.receive.error.rank() == 1);
  CHECK(self.inbox.empty());
  CHECK(self.data.kept.empty());
  CHECK(self.slots.out() == 0);
  CHECK(self.mailbox.buffers_out() == 0);
}

TEST_CASE("ucx inbox: nothing comes behind a goodbye", "[ucx]") {
  Inbound self;
  std::vector<std::byte> nothing;
  UcxHead goodbye = head_of(0, 0, 0);
  goodbye.kind = UcxKind::goodbye;
  CHECK(self.arrive(goodbye, nothing, false) == nullptr);
  const char* const fault = self.arrive(head_of(1, 1, 0), nothing, false);
  CHECK(fault != nullptr);
}

TEST_CASE("ucx inbox: garbage is refused", "[ucx]") {
  std::mt19937 engine(5);
  const auto random = [&] { return static_cast<std::uint32_t>(engine()); };
  for (int round = 0; round < 3000; ++round) {
    Inbound self;
    std::vector<std::vector<std::byte>> all(8);
    const char* fault = nullptr;
    for (std::uint32_t i = 0; i < 8 && !fault; ++i) {
      all[i].resize(random() % 4 * 700);
      UcxHead head = head_of(random() % 4 == 0 ? random() % 10 : i, random() % 3,
                             random() % 2 ? all[i].size() : random() % 5000, random() % 3 * 700);
      if (random() % 5 == 0) head.kind = static_cast<UcxKind>(random() % 9);
      if (random() % 20 == 0) head.version = static_cast<std::uint8_t>(random());
      if (pith::fault_of(head, all[i].size()) || !pith::is_sequenced(head.kind)) continue;
      fault = self.arrive(head, all[i], random() % 2 == 0, random() % 8 == 0);
      if (!fault) self.inbox.pump(fault);
    }
    self.inbox.abandon(Error(Code::remote, "the test has ended"));
    self.mailbox.forget(1);
  }
  SUCCEED("nothing crashed");
}
