// What the tests of the ring transports share: a rank without an engine, and bodies that run over
// threads and over processes alike. Ranks throw where something is wrong, for Catch2's assertions
// belong to one thread.
#pragma once

#include <poll.h>
#include <sched.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <coroutine>
#include <cstring>
#include <deque>
#include <list>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/heap.hpp"
#include "core/mailbox.hpp"
#include "core/scheduler.hpp"
#include "tests/transport/contents.hpp"
#include "transport/ring.hpp"
#include "transport/transport.hpp"

namespace pith_test {

using pith::Bytes;
using pith::Code;
using pith::CommState;
using pith::Error;
using pith::Heap;
using pith::Lease;
using pith::Mailbox;
using pith::MemoryHandle;
using pith::MemoryKind;
using pith::monotonic_ns;
using pith::Receive;
using pith::RingShape;
using pith::Scheduler;
using pith::Send;
using pith::Transport;
using pith::test::same;

inline void must(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

inline std::vector<std::byte> pattern(std::size_t bytes, std::uint32_t seed) {
  return pith::test::contents(bytes, seed);
}

// Small enough that every path is walked by small messages.
inline RingShape tiny_shape() {
  RingShape shape;
  shape.cells = 8;
  shape.small_slots = 4;
  shape.small_bytes = 256;
  shape.large_slots = 4;
  shape.large_bytes = 4096;
  return shape;
}

struct SendOp {
  Send send;
  int remaining = 1;
  std::vector<std::byte> data;
};

struct ReceiveOp {
  Receive receive;
  int remaining = 1;
  std::vector<std::byte> data;
};

class Rank {
 public:
  Rank(int rank, int ranks) : rank_(rank), mailbox(scheduler, ranks) { comm.id = 1; }

  int rank() const { return rank_; }

  SendOp& send(int peer, std::uint32_t call, std::vector<std::byte> data) {
    SendOp& op = sends_.emplace_back();
    op.data = std::move(data);
    op.send.comm = &comm;
    op.send.peer = peer;
    op.send.header.comm = comm.id;
    op.send.header.call = call;
    op.send.header.length = static_cast<std::uint32_t>(op.data.size());
    op.send.data = op.data.data();
    op.send.waiter = std::noop_coroutine();
    op.send.remaining = &op.remaining;
    if (transport->start(op.send)) op.remaining = 0;
    return op;
  }

  ReceiveOp& receive(int peer, std::uint32_t call, std::size_t bytes, bool borrow = false) {
    ReceiveOp& op = receives_.emplace_back();
    op.receive.comm = &comm;
    op.receive.peer = peer;
    op.receive.tag = {comm.id, call, 0, 0};
    op.receive.borrow = borrow;
    if (!borrow) op.data.resize(bytes);
    op.receive.into = op.data.data();
    op.receive.room = bytes;
    op.receive.waiter = std::noop_coroutine();
    op.receive.remaining = &op.remaining;
    if (mailbox.start(op.receive)) op.remaining = 0;
    return op;
  }

  void turn() {
    const bool moved = transport->progress();
    if (!scheduler.run_ready() && !moved) sched_yield();
  }

  template <class Done>
  void until(Done done, const char* what) {
    const std::uint64_t deadline = monotonic_ns() + std::uint64_t{30} * 1000000000;
    while (!done()) {
      must(monotonic_ns() < deadline, std::string("too long: ") + what);
      turn();
    }
  }
  void wait(SendOp& op) {
    until([&] { return op.remaining == 0; }, "send");
    must(!op.send.error, op.send.error.message());
  }
  void wait(ReceiveOp& op) {
    until([&] { return op.remaining == 0; }, "receive");
    must(!op.receive.error, op.receive.error.message());
  }
  // Sends a byte to the peer and waits for one of it.
  void meet(int peer, std::uint32_t call) {
    send(peer, call, pattern(1, call));
    wait(receive(peer, call, 1));
  }

 private:
  const int rank_;

 public:
  Scheduler scheduler;
  Mailbox mailbox;
  CommState comm;
  Transport* transport = nullptr;

 private:
  std::deque<SendOp> sends_;
  std::deque<ReceiveOp> receives_;
};

inline void check_sizes(Rank& self, const std::vector<std::size_t>& sizes) {
  const int peer = 1 - self.rank();
  std::uint32_t call = 100;
  for (const std::size_t size : sizes) {
    ++call;
    SendOp& sent = self.send(peer, call, pattern(size, call + static_cast<unsigned>(self.rank())));
    ReceiveOp& got = self.receive(peer, call, size);
    self.wait(got);
    self.wait(sent);
    must(got.receive.length == size, "length");
    must(same(got.data, pattern(size, call + static_cast<unsigned>(peer))), "contents differ");
  }
}

// Messages that nobody waits for yet, received in the opposite order.
inline void check_unexpected(Rank& self) {
  const int peer = 1 - self.rank();
  constexpr std::uint32_t count = 60;
  std::vector<SendOp*> sent;
  for (std::uint32_t i = 0; i < count; ++i) {
    sent.push_back(&self.send(peer, 1000 + i, pattern(i * 97, i)));
  }
  for (std::uint32_t i = count; i-- > 0;) {
    ReceiveOp& got = self.receive(peer, 1000 + i, i * 97);
    self.wait(got);
    must(same(got.data, pattern(i * 97, i)), "unexpected message differs");
  }
  for (SendOp* op : sent) self.wait(*op);
}

// More leases than there are slots, given back in another order, while messages go on.
inline void check_borrow(Rank& self, std::size_t bytes) {
  const int peer = 1 - self.rank();
  constexpr std::uint32_t count = 50;
  for (std::uint32_t round = 0; round < 3; ++round) {
    const std::uint32_t first = 2000 + round * 1000;
    std::vector<SendOp*> sent;
    std::vector<Lease> leases;
    for (std::uint32_t i = 0; i < count; ++i) {
      sent.push_back(&self.send(peer, first + i, pattern(bytes, i)));
      ReceiveOp& got = self.receive(peer, first + i, bytes, true);
      self.wait(got);
      leases.push_back(std::move(got.receive.lease));
    }
    for (SendOp* op : sent) self.wait(*op);
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint32_t at = (i * 7 + 3) % count;
      const auto expected = pattern(bytes, at);
      must(leases[at].size() == bytes, "lease size");
      must(std::memcmp(leases[at].data(), expected.data(), bytes) == 0, "lease differs");
      leases[at].release();
    }
  }
  self.meet(peer, 9000);
}

// Messages of many lengths, from and to all ranks at once.
inline void check_everyone_to_everyone(Rank& self, int ranks, std::size_t bytes_max) {
  std::vector<SendOp*> sent;
  std::vector<ReceiveOp*> got;
  for (std::uint32_t call = 0; call < 40; ++call) {
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer == self.rank()) continue;
      const std::size_t bytes = call * call * 97 % (bytes_max + 1);
      sent.push_back(&self.send(peer, call, pattern(bytes, static_cast<unsigned>(self.rank()))));
      got.push_back(&self.receive(peer, call, bytes));
    }
  }
  for (ReceiveOp* op : got) {
    self.wait(*op);
    const auto from = static_cast<unsigned>(op->receive.peer);
    must(same(op->data, pattern(op->data.size(), from)), "contents differ");
  }
  for (SendOp* op : sent) self.wait(*op);
}

// How far two ranks have got, in memory that forked ones share too. Zero between its uses.
inline std::atomic<int>& stage =
    *new (mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE,
               MAP_SHARED | MAP_ANONYMOUS, -1, 0)) std::atomic<int>(0);

inline void await_stage(Rank& self, int wanted) {
  self.until([wanted] { return stage >= wanted; }, "the other rank's stage");
}

// A sender far ahead is suspended; all arrives once the receiver takes it.
inline void check_back_pressure(Rank& self) {
  const int peer = 1 - self.rank();
  constexpr std::uint32_t count = 300;
  constexpr std::size_t bytes = 20000;
  if (self.rank() == 0) {
    std::vector<SendOp*> sent;
    for (std::uint32_t i = 0; i < count; ++i) {
      sent.push_back(&self.send(peer, 10000 + i, pattern(bytes, i)));
    }
    stage = 1;
    await_stage(self, 2);
    const bool suspended = self.transport->busy();
    stage = 3;
    must(suspended, "six megabytes went where nobody reads");
    self.send(peer, 9001, pattern(1, 0));
    for (SendOp* op : sent) self.wait(*op);
    self.wait(self.receive(peer, 9002, 1));
    stage = 0;
    return;
  }
  await_stage(self, 1);
  // Takes what it accepts unasked: no more than the backlog allows.
  for (int i = 0; i < 100000; ++i) self.transport->progress();
  stage = 2;
  await_stage(self, 3);
  for (std::uint32_t i = 0; i < count; ++i) {
    ReceiveOp& got = self.receive(peer, 10000 + i, bytes);
    self.wait(got);
    must(same(got.data, pattern(bytes, i)), "message differs");
  }
  self.wait(self.receive(peer, 9001, 1));
  self.wait(self.send(peer, 9002, pattern(1, 0)));
}

// One communicator ends in the middle of a long message; another one goes on over the same ring.
inline void check_quiesce(Rank& self) {
  const int peer = 1 - self.rank();
  constexpr std::size_t bytes = std::size_t{8} << 20;
  CommState broken;
  broken.id = 7;
  if (self.rank() == 0) {
    SendOp op;
    op.data = pattern(bytes, 1);
    op.send.comm = &broken;
    op.send.peer = peer;
    op.send.header.comm = broken.id;
    op.send.header.length = bytes;
    op.send.data = op.data.data();
    op.send.waiter = std::noop_coroutine();
    op.send.remaining = &op.remaining;
    must(!self.transport->start(op.send), "eight megabytes fit the ring");
    SendOp& behind = self.send(peer, 20001, pattern(100, 5));
    broken.revoked = Error(Code::remote, "revoked by the test");
    self.transport->quiesce(broken, broken.revoked);
    must(op.remaining == 0 && op.send.error, "the send has not ended");
    op.data.assign(bytes, std::byte{0});
    self.wait(behind);
    self.meet(peer, 20002);
  } else {
    // The receiver revokes it too, while part of the message has come.
    ReceiveOp op;
    op.data.resize(bytes);
    op.receive.comm = &broken;
    op.receive.peer = peer;
    op.receive.tag = {broken.id, 0, 0, 0};
    op.receive.into = op.data.data();
    op.receive.room = bytes;
    op.receive.waiter = std::noop_coroutine();
    op.receive.remaining = &op.remaining;
    const bool complete = self.mailbox.start(op.receive);
    for (int i = 0; i < 3; ++i) self.turn();
    broken.revoked = Error(Code::remote, "revoked by the test");
    self.mailbox.quiesce(broken, broken.revoked);
    must(complete || op.remaining == 0, "the receive has not ended");
    self.mailbox.forget(broken.id);
    op.data.clear();
    ReceiveOp& behind = self.receive(peer, 20001, 100);
    self.wait(behind);
    must(same(behind.data, pattern(100, 5)), "the message behind differs");
    self.meet(peer, 20002);
  }
}

// Rank 1 sleeps on the descriptor; rank 0 wakes it now and then. A wake-up may be lost between the
// last look and the sleep, which a bounded sleep makes good; most must come.
inline void check_sleep(Rank& self) {
  const int peer = 1 - self.rank();
  constexpr int messages = 20;
  int slept_through = 0;
  for (std::uint32_t i = 0; i < messages; ++i) {
    if (self.rank() == 0) {
      poll(nullptr, 0, 2);
      self.wait(self.send(peer, 30000 + i, pattern(10, i)));
      self.wait(self.receive(peer, 30000 + i, 10));
      continue;
    }
    ReceiveOp& got = self.receive(peer, 30000 + i, 10);
    const std::uint64_t deadline = monotonic_ns() + std::uint64_t{20} * 1000000000;
    while (got.remaining != 0) {
      must(monotonic_ns() < deadline, "never woken");
      bool rung = true;
      if (self.transport->arm()) {
        pollfd polled = {self.transport->descriptor(), POLLIN, 0};
        rung = poll(&polled, 1, 100) != 0;
        self.transport->disarm();
      }
      self.turn();
      if (got.remaining == 0 && !rung) ++slept_through;
    }
    self.wait(self.send(peer, 30000 + i, pattern(10, i)));
  }
  must(slept_through <= messages / 2, "the descriptor does not ring");
}

inline void check_all(Rank& self, std::size_t longest) {
  std::vector<std::size_t> sizes = {0,   1,   7,    8,    23,   24,   25,   64,    255,
                                    256, 257, 2048, 2049, 4096, 4097, 8192, 10000, 65536};
  for (std::size_t size = 65537; size <= longest; size *= 3) sizes.push_back(size);
  sizes.push_back(longest);
  self.meet(1 - self.rank(), 1);
  check_sizes(self, sizes);
  check_unexpected(self);
  check_borrow(self, 100);
  check_borrow(self, 4000);
  check_back_pressure(self);
  check_quiesce(self);
  check_sleep(self);
}

}  // namespace pith_test
