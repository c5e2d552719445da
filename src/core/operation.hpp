// What a suspended coroutine waits for. An operation lives in the frame of the coroutine that
// awaits it; transports and mailbox link operations into lists and never own them.
#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/error.hpp"
#include "core/heap.hpp"
#include "core/memory.hpp"

namespace pith {

// Identifies a message between two ranks: `call` is the number of the call in its communicator,
// `lane` of the strand in its call, `step` of the message in its strand.
struct Tag {
  std::uint32_t comm = 0;
  std::uint32_t call = 0;
  std::uint32_t step = 0;
  std::uint16_t lane = 0;

  friend bool operator==(const Tag&, const Tag&) = default;
};

inline constexpr std::uint8_t wire_version = 3;
// The longest message on any transport.
inline constexpr std::uint32_t message_bytes_max = std::uint32_t{1} << 31;

// The header of every message on every transport: 32 bytes, so that header, flag and a small
// payload share one cache line. `digest` is a hash of the call's arguments; a mismatch is reported
// as an error.
struct Header {
  std::uint32_t comm = 0;
  std::uint32_t call = 0;
  std::uint32_t step = 0;
  std::uint16_t lane = 0;
  std::uint16_t version = wire_version;
  std::uint32_t length = 0;
  std::uint32_t reserved = 0;
  std::uint64_t digest = 0;

  Tag tag() const { return {comm, call, step, lane}; }
  friend bool operator==(const Header&, const Header&) = default;
};
static_assert(sizeof(Header) == 32);

// A communicator as transports and mailbox see it. Once `revoked` is set, every operation fails.
struct CommState {
  std::uint32_t id = 0;
  Error revoked;
  bool exposed = false;  // peers have been given access to memory of this rank
  HeapRooms rooms;
};

struct Operation {
  std::coroutine_handle<> waiter;
  int* remaining = nullptr;  // set if one coroutine waits for several operations
  Operation* next = nullptr;
  CommState* comm = nullptr;
  int peer = -1;  // the transport's index of the peer
  Error error;
};

class Scratch;

struct Send : Operation {
  Header header;
  const std::byte* data = nullptr;
  Scratch* direct = nullptr;  // set if `data` is in it: memory that the network reads directly
};

// The owner of the slots in which borrowed messages stay until they are released.
class SlotOwner {
 public:
  virtual void release_slot(int peer, std::uint64_t slot) = 0;

 protected:
  ~SlotOwner() = default;
};

// A received message, read in place. The end of the lease returns the slot (the credit).
class Lease {
 public:
  Lease() = default;
  Lease(const std::byte* data, std::size_t size, SlotOwner* owner, int peer, std::uint64_t slot)
      : data_(data), size_(size), owner_(owner), peer_(peer), slot_(slot) {}
  Lease(Lease&& other) noexcept
      : data_(other.data_),
        size_(other.size_),
        owner_(std::exchange(other.owner_, nullptr)),
        peer_(other.peer_),
        slot_(other.slot_) {}
  Lease& operator=(Lease&& other) noexcept {
    release();
    data_ = other.data_;
    size_ = other.size_;
    owner_ = std::exchange(other.owner_, nullptr);
    peer_ = other.peer_;
    slot_ = other.slot_;
    return *this;
  }
  ~Lease() { release(); }

  const std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  void release() {
    if (owner_) std::exchange(owner_, nullptr)->release_slot(peer_, slot_);
  }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  SlotOwner* owner_ = nullptr;
  int peer_ = -1;
  std::uint64_t slot_ = 0;
};

struct Receive : Operation {
  Tag tag;
  std::uint64_t digest = 0;
  std::byte* into = nullptr;  // unused if borrow
  std::size_t room = 0;       // of `into`; a longer message is an error, never truncated
  std::size_t length = 0;     // out: bytes received
  bool borrow = false;
  Lease lease;                // out, if borrow
  Scratch* direct = nullptr;  // where the network may write instead, if Send::direct is set
  bool landed = false;        // out: the message is in `direct`
};

// Is told when operations begin and end; see transport/trace.hpp.
class OperationObserver {
 public:
  virtual void begins(const Send& send) = 0;
  virtual void begins(const Receive& receive) = 0;
  virtual void ends(const Operation& operation) = 0;

 protected:
  ~OperationObserver() = default;
};

}  // namespace pith
