// One ring by itself: what there is room for, and how its slots are used.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "catch.hpp"
#include "transport/local/local.hpp"
#include "transport/ring_support.hpp"

namespace {

using namespace pith_test;
using pith::Header;
using pith::RingCell;
using pith::RingKind;
using pith::RingReceiver;
using pith::RingSender;

struct Pages {
  explicit Pages(const RingShape& shape)
      : memory(static_cast<std::byte*>(std::aligned_alloc(4096, shape.bytes()))) {
    std::memset(memory.get(), 0, shape.bytes());
  }
  struct Free {
    void operator()(std::byte* pages) const { std::free(pages); }
  };
  std::unique_ptr<std::byte, Free> memory;
};

struct OneRing {
  bool push(std::size_t length, std::uint32_t in_turn = 1) {
    Header header;
    header.length = static_cast<std::uint32_t>(length);
    return sender.push(header, data.data(), in_turn);
  }
  // Reads the next message and keeps its slot.
  std::pair<RingKind, std::uint32_t> keep() {
    REQUIRE(receiver.ready());
    const pith::RingMessage message = receiver.front();
    if (message.kind != RingKind::in_cell) receiver.keep(message.kind);
    receiver.pop();
    return {message.kind, message.slot};
  }
  void keep_all() {
    while (receiver.ready()) keep();
  }

  const RingShape shape = tiny_shape();
  Pages pages{shape};
  RingSender sender{shape, pages.memory.get()};
  RingReceiver receiver{shape, pages.memory.get()};
  const std::vector<std::byte> data = pattern(4096, 1);
};

constexpr std::size_t in_cell = RingCell::inline_bytes;
constexpr std::size_t small = 256;
constexpr std::size_t large = 4096;

}  // namespace

TEST_CASE("ring: there is room for what can be pushed, and for no more", "[shm]") {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    OneRing ring;
    std::vector<std::pair<RingKind, std::uint32_t>> kept;
    for (int move = 0; move < 60; ++move) {
      const std::size_t lengths[] = {0, in_cell, in_cell + 1, small, small + 1, large};
      const std::size_t length = lengths[random() % 6];
      const bool room = ring.sender.room(length);
      REQUIRE(ring.push(length) == room);
      if (random() % 2 == 0 && ring.receiver.ready()) kept.push_back(ring.keep());
      if (random() % 3 != 0 || kept.empty()) continue;
      const std::size_t which = random() % kept.size();
      const auto [kind, slot] = kept[which];
      if (kind != RingKind::in_cell) ring.receiver.return_kept(kind, slot);
      kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(which));
    }
  }
}

TEST_CASE("ring: messages without a slot pass while all slots are lent", "[shm]") {
  OneRing ring;
  while (ring.push(large)) {
  }
  ring.keep_all();
  CHECK_FALSE(ring.sender.room(large));
  CHECK(ring.sender.room(small));
  while (ring.push(small)) ring.keep_all();
  CHECK_FALSE(ring.sender.room(small));
  CHECK_FALSE(ring.sender.room(large + 1));
  CHECK(ring.sender.room(in_cell));
  CHECK(ring.push(in_cell));
}

TEST_CASE("ring: large slots are filled in turn, or always the first free one", "[shm]") {
  for (const std::uint32_t in_turn : {1u, 2u, 3u, 4u}) {
    OneRing ring;
    for (std::uint32_t round = 0; round < 12; ++round) {
      REQUIRE(ring.push(large, in_turn));
      const auto [kind, slot] = ring.keep();
      CHECK(slot == round % in_turn);
      ring.receiver.return_kept(kind, slot);
    }
  }
}

TEST_CASE("ring: a slot that is kept is passed over, and its turn comes again", "[shm]") {
  OneRing ring;
  constexpr std::uint32_t in_turn = 2;
  REQUIRE(ring.push(large, in_turn));
  const auto kept = ring.keep();
  CHECK(kept.second == 0);
  for (const std::uint32_t expected : {1u, 1u, 1u}) {
    REQUIRE(ring.push(large, in_turn));
    const auto [kind, slot] = ring.keep();
    CHECK(slot == expected);
    ring.receiver.return_kept(kind, slot);
  }
  ring.receiver.return_kept(kept.first, kept.second);
  REQUIRE(ring.push(large, in_turn));
  CHECK(ring.keep().second == 0);
  REQUIRE(ring.push(large, in_turn));
  CHECK(ring.keep().second == 1);
  REQUIRE(ring.push(large, in_turn));
  CHECK(ring.keep().second == 2);  // better than none
}

TEST_CASE("ring: a slot whose turn it is not comes before one that is not used in turn", "[shm]") {
  OneRing ring;
  constexpr std::uint32_t in_turn = 2;
  REQUIRE(ring.push(large, in_turn));
  REQUIRE(ring.push(large, in_turn));
  const auto first = ring.keep();
  CHECK(ring.keep().second == 1);  // and stays
  for (int round = 0; round < 3; ++round) {
    ring.receiver.return_kept(first.first, first.second);
    REQUIRE(ring.push(large, in_turn));
    CHECK(ring.keep().second == 0);
  }
}

TEST_CASE("ring: what is filled one way or the other arrives whole", "[shm]") {
  OneRing ring;
  for (int message = 0; message < 1100; ++message) {  // trials of the other way among them
    const std::size_t length = small + 1 + static_cast<std::size_t>(message) % (large - small);
    REQUIRE(ring.push(length, 4));
    const pith::RingMessage came = ring.receiver.front();
    REQUIRE(std::memcmp(came.data, ring.data.data(), length) == 0);
    const auto [kind, slot] = ring.keep();
    ring.receiver.return_kept(kind, slot);
  }
}

TEST_CASE("ring: copies past the caches are whole at any length", "[shm]") {
  alignas(64) std::array<std::byte, 512> to{};
  const std::vector<std::byte> from = pattern(400, 3);
  for (std::size_t length = 0; length < 300; ++length) {
    to.fill(std::byte{0x5a});
    pith::copy_bytes_past_caches(to.data(), from.data() + length % 7, length);
    REQUIRE(std::equal(to.begin(), to.begin() + static_cast<std::ptrdiff_t>(length),
                       from.begin() + static_cast<std::ptrdiff_t>(length % 7)));
    REQUIRE(to[length] == std::byte{0x5a});
  }
}

TEST_CASE("ring: caches are left where that saves much, and returned to where it does not",
          "[shm]") {
  pith::SlotFilling filling;
  const auto note = [&](bool past_caches, std::uint64_t ns) {
    for (int i = 0; i < 4; ++i) filling.note(past_caches, ns, 1000);
  };
  for (const bool first : {false, true}) {
    pith::SlotFilling begins;
    begins.note(first, first ? 1 : 1000, 1000);
    CHECK_FALSE(begins.is_past_caches());  // the other way has not been tried
  }
  note(false, 1000);
  note(true, 100);
  CHECK(filling.is_past_caches());
  note(false, 200);
  CHECK(filling.is_past_caches());
  filling.note(false, 140, 1000);  // the quickest of the last ones counts
  CHECK_FALSE(filling.is_past_caches());
  note(false, 200);
  CHECK_FALSE(filling.is_past_caches());
  note(false, 300);
  CHECK(filling.is_past_caches());
}

TEST_CASE("ring: a line counts once each time that it is written", "[shm]") {
  OneRing ring;
  CHECK(ring.sender.look_at_probe() == 0);
  for (int round = 0; round < 3; ++round) {
    ring.receiver.write_probe();
    CHECK(ring.sender.look_at_probe() != 0);
    CHECK(ring.sender.look_at_probe() == 0);
  }
}

TEST_CASE("local: a message at the front is taken without the mailbox, if it is the one", "[shm]") {
  std::shared_ptr<pith::LocalHub> hub = *pith::LocalHub::create(2, tiny_shape());
  Rank zero(0, 2);
  Rank one(1, 2);
  pith::LocalTransport to_one(zero.scheduler, zero.mailbox, 0, hub);
  pith::LocalTransport to_zero(one.scheduler, one.mailbox, 1, hub);
  zero.transport = &to_one;
  one.transport = &to_zero;
  std::uint32_t call = 0;
  const auto send = [&](std::size_t bytes) -> SendOp& {
    ++call;
    return zero.send(1, call, pattern(bytes, call));
  };
  const auto takes = [&](const Header& header) -> std::optional<std::vector<std::byte>> {
    std::vector<std::byte> read(header.length);
    const pith::FrontReader reader{[](void* context, const std::byte* payload) {
                                     auto& into = *static_cast<std::vector<std::byte>*>(context);
                                     std::memcpy(into.data(), payload, into.size());
                                   },
                                   &read};
    if (to_zero.take_front(0, header, reader) != pith::Front::taken) return std::nullopt;
    return read;
  };
  // More than there are cells and slots: all that is taken goes back.
  for (const std::size_t bytes : {std::size_t{1}, in_cell, small, large}) {
    for (int turn = 0; turn < 20; ++turn) {
      const SendOp& sent = send(bytes);
      REQUIRE(sent.remaining == 0);
      Header other = sent.send.header;
      ++other.digest;
      REQUIRE_FALSE(takes(other).has_value());
      REQUIRE(takes(sent.send.header) == sent.data);
      REQUIRE_FALSE(takes(sent.send.header).has_value());
    }
  }
  // Behind another one it waits, and what comes in pieces is never taken so.
  send(5);
  const SendOp& behind = send(5);
  CHECK_FALSE(takes(behind.send.header).has_value());
  one.wait(one.receive(0, call - 1, 5));
  one.wait(one.receive(0, call, 5));
  const SendOp& cut = send(large + 1);
  CHECK_FALSE(takes(cut.send.header).has_value());
  ReceiveOp& whole = one.receive(0, call, large + 1);
  one.until([&] { return (zero.turn(), whole.remaining == 0); }, "pieces");
  CHECK(same(whole.data, cut.data));
}

TEST_CASE("local: a rank does not sleep while what it sends has room", "[shm]") {
  std::shared_ptr<pith::LocalHub> hub = *pith::LocalHub::create(2, tiny_shape());
  Rank zero(0, 2);
  Rank one(1, 2);
  pith::LocalTransport to_one(zero.scheduler, zero.mailbox, 0, hub);
  pith::LocalTransport to_zero(one.scheduler, one.mailbox, 1, hub);
  zero.transport = &to_one;
  one.transport = &to_zero;
  // Two large slots are lent, and the other two filled behind short messages. A short one more
  // needs a cell only, and there is none.
  std::uint32_t call = 0;
  const auto send = [&](std::size_t bytes) -> SendOp& {
    ++call;
    return zero.send(1, call, pattern(bytes, call));
  };
  ReceiveOp* lent[] = {&one.receive(0, 1, large, true), &one.receive(0, 2, large, true)};
  for (int i = 0; i < 2; ++i) send(large);
  one.transport->progress();
  for (ReceiveOp* op : lent) REQUIRE(op->remaining == 0);
  one.mailbox.backlog_limit = 300;  // of two short ones
  for (int i = 0; i < 6; ++i) REQUIRE(send(5).remaining == 0);
  for (int i = 0; i < 2; ++i) REQUIRE(send(large).remaining == 0);
  const SendOp& last = send(5);
  REQUIRE(last.remaining == 1);
  CHECK(zero.transport->arm());
  zero.transport->disarm();
  one.transport->progress();
  CHECK_FALSE(zero.transport->arm());
  zero.transport->progress();
  CHECK(last.remaining == 0);
  for (ReceiveOp* op : lent) op->receive.lease.release();
}
