// One ring by itself: what there is room for.
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
  bool push(std::size_t length) {
    Header header;
    header.length = static_cast<std::uint32_t>(length);
    return sender.push(header, data.data());
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
