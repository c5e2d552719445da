// A one-way message ring between two ranks, in memory that both can access.
//
//   control   written by the receiver: how far it has read, which slots it has returned
//   probe     written by the receiver, so that the sender finds out how long a line takes
//   cells     64 bytes each: flag, header and up to 24 bytes of payload share one cache line, so a
//             small message costs a single line transfer
//   slots     payload of larger messages, in two sizes; a message may stay in its slot while the
//             receiver reads it in place, and slots are returned in any order
//
// Only release stores and acquire loads of the flag, the read position and the slot masks order
// memory, and a fence where a slot was filled past the caches: no lock, no system call. Each side
// keeps its state in private memory.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "core/clock.hpp"
#include "core/copy.hpp"
#include "core/operation.hpp"
#include "transport/slot_filling.hpp"

namespace pith {

// Sizes of a ring; both ends must have the same.
struct RingShape {
  std::uint32_t cells = 64;               // a power of two, at least 8
  std::uint32_t small_slots = 32;         // at most 64
  std::uint32_t small_bytes = 4096 + 64;  // a multiple of 64, but not of the cache's set stride
  std::uint32_t large_slots = 16;         // at most 64
  std::uint32_t large_bytes = 64 << 10;   // a multiple of 64

  friend bool operator==(const RingShape&, const RingShape&) = default;
  std::size_t small_offset() const { return page(cells_offset + std::size_t{cells} * 64); }
  std::size_t large_offset() const {
    return page(small_offset() + std::size_t{small_slots} * small_bytes);
  }
  std::size_t bytes() const {
    return page(large_offset() + std::size_t{large_slots} * large_bytes);
  }

  // Away from the lines beside it, which some processors fetch in pairs.
  static constexpr std::size_t probe_offset = 128;
  static constexpr std::size_t cells_offset = 256;
  static std::size_t page(std::size_t bytes) { return (bytes + 4095) / 4096 * 4096; }
};

struct alignas(64) RingControl {
  std::atomic<std::uint32_t> read;
  // One bit a slot, flipped each time the slot is returned. The sender flips its own copy when it
  // fills the slot, so equal bits mean a free slot.
  std::atomic<std::uint64_t> small_returned;
  std::atomic<std::uint64_t> large_returned;
};

struct alignas(64) RingProbe {
  std::atomic<std::uint32_t> writes;
};

struct alignas(64) RingCell {
  static constexpr std::size_t inline_bytes = 24;
  // Position + 1 in the low half, so that cells need not be cleared; kind and slot above.
  std::atomic<std::uint64_t> flag;
  Header header;
  std::byte payload[inline_bytes];
};
static_assert(sizeof(RingCell) == 64 && std::atomic<std::uint64_t>::is_always_lock_free);

enum class RingKind : std::uint8_t {
  in_cell,  // whole message in the cell
  small,    // whole message in a small slot
  large,    // whole message in a large slot
  first,    // a message longer than a large slot begins
  more,     // its next piece; no header
};

// For the few bytes of a cell a call of memcpy would cost more than the copy.
inline void copy_short(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes >= 8) {
    std::memcpy(to, from, 8);
    if (bytes > 16) std::memcpy(to + 8, from + 8, 8);
    std::memcpy(to + bytes - 8, from + bytes - 8, 8);
  } else if (bytes >= 4) {
    std::memcpy(to, from, 4);
    std::memcpy(to + bytes - 4, from + bytes - 4, 4);
  } else {
    for (std::size_t i = 0; i < bytes; ++i) to[i] = from[i];
  }
}

class RingSender {
 public:
  RingSender() = default;
  RingSender(const RingShape& shape, std::byte* memory)
      : cells_(reinterpret_cast<RingCell*>(memory + RingShape::cells_offset)),
        control_(reinterpret_cast<RingControl*>(memory)),
        probe_(reinterpret_cast<RingProbe*>(memory + RingShape::probe_offset)),
        mask_(shape.cells - 1),
        limit_(shape.cells),
        small_{memory + shape.small_offset(), shape.small_bytes, shape.small_slots},
        large_{memory + shape.large_offset(), shape.large_bytes, shape.large_slots} {}

  std::size_t slot_bytes() const { return large_.bytes; }

  // Sends a message of at most slot_bytes(). False: no room now. So many large slots are filled in
  // turn, at most all; 1: always the first free one.
  bool push(const Header& header, const std::byte* data, std::uint32_t in_turn = 1) {
    if (next_ == limit_ && !look_for_cells()) return false;
    const std::size_t length = header.length;
    RingCell& cell = cells_[next_ & mask_];
    if (length <= RingCell::inline_bytes) {
      cell.header = header;
      copy_short(cell.payload, data, length);
      publish(cell, RingKind::in_cell, 0);
      return true;
    }
    bool small = length <= small_.bytes;
    int slot = small ? take_small() : -1;
    if (slot < 0) {
      small = false;
      slot = take_large(in_turn);
    }
    if (slot < 0) return false;
    if (small) {
      copy_bytes(small_.at(slot), data, length);
    } else {
      filling_.fill(large_.at(slot), data, length);
    }
    cell.header = header;
    publish(cell, small ? RingKind::small : RingKind::large, slot);
    return true;
  }

  // Sends a piece of a longer message; only the first one needs the header.
  bool push_piece(const Header* first, const std::byte* data, std::size_t length,
                  std::uint32_t in_turn = 1) {
    if (next_ == limit_ && !look_for_cells()) return false;
    const int slot = take_large(in_turn);
    if (slot < 0) return false;
    RingCell& cell = cells_[next_ & mask_];
    filling_.fill(large_.at(slot), data, length);
    if (first) cell.header = *first;
    publish(cell, first ? RingKind::first : RingKind::more, slot);
    return true;
  }

  // How long it takes to read a line that the receiver has written since the last look, with the
  // time of a look at the clock, at least 1; 0: it has written none.
  std::uint64_t look_at_probe() {
    control_->read.load(std::memory_order_acquire);  // of the same page, which the core may look up
    const std::uint64_t begin_ns = monotonic_ns();
    const std::uint32_t writes = probe_->writes.load(std::memory_order_acquire);
    const std::uint64_t took_ns = monotonic_ns() - begin_ns;
    if (std::exchange(probed_, writes) == writes) return 0;
    return std::max<std::uint64_t>(took_ns, 1);
  }

  const SlotFilling& filling() const { return filling_; }

  // Whether a message of this length, or its next piece, could be pushed.
  bool room(std::size_t length) {
    if (next_ == limit_ && !look_for_cells()) return false;
    if (length <= RingCell::inline_bytes) return true;
    return (length <= small_.bytes && small_.free(control_->small_returned)) ||
           large_.free(control_->large_returned);
  }

 private:
  struct Slots {
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
    std::uint32_t count = 0;
    std::uint64_t taken = 0;
    std::uint64_t returned = 0;  // as last seen
    std::uint32_t turn = 0;      // where a free one is looked for first

    std::byte* at(int slot) const { return memory + static_cast<std::size_t>(slot) * bytes; }
    std::uint64_t all() const { return count == 64 ? ~0ull : (1ull << count) - 1; }
    // Precondition: in_turn from 1 to count.
    int take(std::uint32_t in_turn = 1) {
      const std::uint64_t unused = all() & ~(taken ^ returned);
      if (unused == 0) return -1;
      const std::uint64_t usual = unused & (~0ull >> (64 - in_turn));
      const std::uint64_t next = usual & (~0ull << turn);
      const int slot = std::countr_zero(next != 0 ? next : usual != 0 ? usual : unused);
      taken ^= 1ull << slot;
      if (in_turn > 1) turn = (static_cast<std::uint32_t>(slot) + 1) % in_turn;
      return slot;
    }
    bool free(const std::atomic<std::uint64_t>& now) const {
      return (all() & ~(taken ^ now.load(std::memory_order_acquire))) != 0;
    }
  };

  bool look_for_cells() {
    limit_ = control_->read.load(std::memory_order_acquire) + mask_ + 1;
    return next_ != limit_;
  }
  // Small slots: reads the receiver's line only when none is left, as that costs a line transfer.
  int take_small() {
    const int slot = small_.take();
    if (slot >= 0) return slot;
    small_.returned = control_->small_returned.load(std::memory_order_acquire);
    return small_.take();
  }
  // Large slots: always reads it, so that no more are in use than the caller wants.
  int take_large(std::uint32_t in_turn) {
    large_.returned = control_->large_returned.load(std::memory_order_acquire);
    return large_.take(in_turn);
  }
  void publish(RingCell& cell, RingKind kind, int slot) {
    const std::uint64_t flag = static_cast<std::uint64_t>(++next_) |
                               static_cast<std::uint64_t>(kind) << 32 |
                               static_cast<std::uint64_t>(slot) << 40;
    cell.flag.store(flag, std::memory_order_release);
  }

  RingCell* cells_ = nullptr;
  RingControl* control_ = nullptr;
  RingProbe* probe_ = nullptr;
  std::uint32_t mask_ = 0;
  std::uint32_t next_ = 0;    // position of the next cell to fill
  std::uint32_t limit_ = 0;   // first position that is not known to be free
  std::uint32_t probed_ = 0;  // as last seen
  SlotFilling filling_;
  Slots small_;
  Slots large_;
};

// A received cell; valid until pop() is called.
struct RingMessage {
  RingKind kind = RingKind::in_cell;
  std::uint32_t slot = 0;
  const Header* header = nullptr;
  const std::byte* data = nullptr;
};

class alignas(64) RingReceiver {
 public:
  RingReceiver() = default;
  RingReceiver(const RingShape& shape, std::byte* memory)
      : cell_(reinterpret_cast<RingCell*>(memory + RingShape::cells_offset)),
        mask_(shape.cells - 1),
        publish_mask_(shape.cells / 4 - 1),
        control_(reinterpret_cast<RingControl*>(memory)),
        probe_(reinterpret_cast<RingProbe*>(memory + RingShape::probe_offset)),
        small_{memory + shape.small_offset(), shape.small_bytes, shape.small_slots},
        large_{memory + shape.large_offset(), shape.large_bytes, shape.large_slots} {}

  bool ready() const {
    return static_cast<std::uint32_t>(cell_->flag.load(std::memory_order_acquire)) == read_ + 1;
  }
  // Precondition: ready().
  RingMessage front() const {
    const std::uint64_t flag = cell_->flag.load(std::memory_order_relaxed);
    RingMessage message;
    message.kind = static_cast<RingKind>(flag >> 32 & 0xff);
    message.slot = static_cast<std::uint32_t>(flag >> 40);
    message.header = &cell_->header;
    message.data =
        message.kind == RingKind::in_cell ? cell_->payload : slots(message.kind).at(message.slot);
    return message;
  }
  // Returns the cell; true when the sender has been told, which happens every few cells.
  bool pop() {
    ++read_;
    cell_ = (read_ & mask_) != 0 ? cell_ + 1 : cell_ - mask_;
    if ((read_ & publish_mask_) != 0) return false;
    control_->read.store(read_, std::memory_order_release);
    return true;
  }

  // A kept slot takes credit from the sender. Two slots of each size are never kept, so that the
  // receiver can be reached whatever leases are held.
  bool may_keep(RingKind kind) const { return slots(kind).kept + 2 < slots(kind).count; }
  void keep(RingKind kind) { ++slots(kind).kept; }
  void return_kept(RingKind kind, std::uint32_t slot) {
    --slots(kind).kept;
    return_slot(kind, slot);
  }
  void return_slot(RingKind kind, std::uint32_t slot) {
    Slots& of = slots(kind);
    of.returned ^= 1ull << slot;
    (kind == RingKind::small ? control_->small_returned : control_->large_returned)
        .store(of.returned, std::memory_order_release);
  }
  std::size_t slot_bytes() const { return large_.bytes; }
  void write_probe() { probe_->writes.fetch_add(1, std::memory_order_relaxed); }

 private:
  struct Slots {
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
    std::uint32_t count = 0;
    std::uint32_t kept = 0;
    std::uint64_t returned = 0;
    std::byte* at(std::uint32_t slot) const { return memory + slot * bytes; }
  };
  Slots& slots(RingKind kind) { return kind == RingKind::small ? small_ : large_; }
  const Slots& slots(RingKind kind) const { return kind == RingKind::small ? small_ : large_; }

  // ready() reads the first members: polling an idle peer touches this line and its cell only.
  RingCell* cell_ = nullptr;
  std::uint32_t read_ = 0;
  std::uint32_t mask_ = 0;
  std::uint32_t publish_mask_ = 0;
  RingControl* control_ = nullptr;
  RingProbe* probe_ = nullptr;
  Slots small_;
  Slots large_;
};

// Where a rank announces that it sleeps. A peer that finds `bits` set clears it and rings the
// doorbell. There is no fence before that check, as it would cost more than the send: a wake-up may
// be lost, so ranks never sleep for long.
struct alignas(64) RingSleep {
  enum : std::uint32_t { awake = 0, for_messages = 1, for_room = 2 };
  std::atomic<std::uint32_t> bits;
};

}  // namespace pith
