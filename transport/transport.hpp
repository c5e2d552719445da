// The transport seam: what an algorithm may ask of a link, the same for threads, shared memory,
// sockets and virtual time.
//
// The Mailbox receives: a transport calls Mailbox::deliver (whole message in a slot) or
// begin/finish (piece by piece), and asks Mailbox::accepts(peer) before it takes more from a peer.
// A transport itself sends, exposes memory, and waits.
//
// Threads: all functions are called by the thread that drives the engine, one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string_view>

#include "core/memory.hpp"
#include "core/operation.hpp"
#include "core/pollable.hpp"

namespace pith {

class Compute;

// How a peer can reach memory of this rank; plain data, as it travels in a message.
struct MemoryHandle {
  enum class Reach : std::uint8_t {
    none,  // not at all: contents go by messages
    load_store,
    copy,  // by copy_from() and copy_to(), which cost a system call
  };
  std::uint64_t where = 0;
  Reach reach = Reach::none;
};

inline constexpr std::size_t no_bytes = std::numeric_limits<std::size_t>::max();

enum class Front : std::uint8_t {
  hidden,  // the transport cannot tell
  none,    // there is no message yet
  other,   // another one is next, or a part of one
  taken,
};
// Gets the payload of a message, valid until it returns.
struct FrontReader {
  void (*read)(void* context, const std::byte* data);
  void* context;
};

class Transport : public Pollable {
 public:
  using Pollable::Pollable;
  virtual std::string_view name() const = 0;

  // True: complete at once (send.error has the result). False: the waiter is resumed once the bytes
  // are no longer accessed. A send waits while there is no room on the wire to the peer; that is
  // the flow control. Messages of one sender to one peer arrive in order; any length up to
  // message_bytes_max. std::bad_alloc: the send has not begun.
  virtual bool start(Send& send) = 0;

  // Messages up to this size are delivered whole, so they can be borrowed in place.
  virtual std::size_t slot_bytes() const = 0;

  // Reads the peer's next message where it lies, if it has come whole and has this header, which no
  // message has that the mailbox has stored. The mailbox never sees it.
  virtual Front take_front(int, const Header&, const FrontReader&) { return Front::hidden; }

  // From this size on, messages can be sent directly from its scratch (Send::direct), and received
  // directly into it (Receive::direct). no_bytes: never.
  virtual std::size_t direct_bytes(Compute&) const { return no_bytes; }
  // Whether it may be this scratch: the network's hardware may refuse it.
  virtual bool reaches(Scratch&) { return true; }

  // Load/store access. `expose` describes memory of this rank to `peer`; it must stay valid until
  // the algorithm's own messages say that the peer has finished. Both ends know from the handle
  // alone whether it can be reached. `map` returns the local address of what a peer exposed.
  virtual MemoryHandle expose(int peer, Bytes memory) = 0;
  virtual std::byte* map(int peer, MemoryHandle handle) = 0;
  // The same for copies alone, also of memory that `expose` leaves to messages.
  virtual MemoryHandle expose_for_copies(int, Bytes) { return {}; }
  // Whether messages to and from the peer take less than such copies now. Both ask once a call.
  virtual bool prefers_messages(int) { return false; }

  // Copy from and to what a peer exposed with Reach::copy, from `where` on. Host memory only.
  virtual Error copy_from(int peer, std::uint64_t where, Bytes into);
  virtual Error copy_to(int peer, std::uint64_t where, Bytes from);

  // Ends every pending send of the communicator with `error`, once its bytes are no longer
  // accessed. What is half on the wire is completed from a copy, so that other communicators go on.
  virtual void quiesce(const CommState& comm, const Error& error) = 0;

  // Messages to the peer and from it come soon: who connects on demand may begin.
  virtual void expect(int) {}

  // Grows whenever something has come from the peer.
  virtual std::uint64_t heard_from(int peer) const = 0;

  // Sends that are waited for, those to one peer in order; for reports of stalls.
  virtual void for_each_sending(const std::function<void(const Send&)>& see) const = 0;
};

inline Error Transport::copy_from(int, std::uint64_t, Bytes) {
  return {Code::internal, "this transport exposes nothing to be copied"};
}
inline Error Transport::copy_to(int, std::uint64_t, Bytes) {
  return {Code::internal, "this transport exposes nothing to be copied"};
}

}  // namespace pith
