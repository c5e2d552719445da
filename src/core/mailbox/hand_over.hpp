// Passes an arrived message to its receive: copied, lent, or refused with an error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

#include "core/copy.hpp"
#include "core/mailbox/stored_messages.hpp"
#include "core/message_heap.hpp"
#include "core/operation.hpp"

namespace pith {

// These two throw nothing, for their receive is in no list any more and has to end: without memory
// for the message they say so. another_call(): the peer is in another collective than this rank.
Error another_call(int peer, std::uint32_t call);
// The error for a message that the receive does not expect. Precondition: !fits().
Error mismatch(const Receive& receive, const Header& header);

inline bool fits(const Receive& receive, const Header& header) {
  return header.length <= receive.room && receive.digest == header.digest;
}

// Sets receive.error and returns false if the receive does not expect this message.
inline bool check_message(Receive& receive, const Header& header) {
  if (!fits(receive, header)) [[unlikely]] {
    receive.error = mismatch(receive, header);
    return false;
  }
  receive.length = header.length;
  return true;
}

// Converts a heap buffer to the slot of a lease, and back.
inline std::uint64_t slot_of(std::byte* buffer) { return reinterpret_cast<std::uint64_t>(buffer); }
inline std::byte* buffer_at(std::uint64_t slot) { return reinterpret_cast<std::byte*>(slot); }

// Lends a copy of the message. If there is no memory for it, the receive ends with an error.
inline void lend_copy(MessageHeap& heap, Receive& receive, const Header& header,
                      const std::byte* data) {
  std::byte* owned = nullptr;
  try {
    owned = heap.take(header.length);
  } catch (const std::bad_alloc&) {
    receive.error = out_of_memory();
    return;
  }
  copy_bytes(owned, data, header.length);
  receive.lease = Lease(owned, header.length, &heap, receive.peer, slot_of(owned));
}

// `owned`: a heap buffer, which is given back to the heap or goes with the lease.
inline void hand_over_owned(MessageHeap& heap, Receive& receive, const Header& header,
                            std::byte* owned) {
  if (check_message(receive, header)) {
    if (receive.borrow) {
      receive.lease = Lease(owned, header.length, &heap, receive.peer, slot_of(owned));
      return;
    }
    copy_bytes(receive.into, owned, header.length);
  }
  heap.give(owned);
}

// The message lies in a slot, which is given back at once or goes with the lease.
inline void hand_over_slot(Receive& receive, const StoredMessage& stored) {
  Lease lease(stored.data, stored.header.length, stored.owner, stored.peer, stored.slot);
  if (!check_message(receive, stored.header)) return;
  if (receive.borrow) {
    receive.lease = std::move(lease);
  } else {
    copy_bytes(receive.into, stored.data, stored.header.length);
  }
}

inline void hand_over(MessageHeap& heap, Receive& receive, const StoredMessage& stored) {
  if (stored.owner) return hand_over_slot(receive, stored);
  if (!check_message(receive, stored.header)) return;
  if (receive.borrow) {
    lend_copy(heap, receive, stored.header, stored.data);
  } else {
    copy_bytes(receive.into, stored.data, stored.header.length);
  }
}

}  // namespace pith
