// Matches arriving messages with waiting receives, for all transports of one engine.
//
// A message that nobody waits for yet is stored: small ones are copied, larger ones stay in their
// transport's slot until they are received or their communicator is forgotten. Flow control follows
// from this: a transport takes messages from a peer only while `accepts(peer)`, so a rank far ahead
// fills its own wire and then waits. A rank that waits for a peer's message always accepts from
// it, which is what keeps back-pressure from turning into deadlock.
//
// Without memory for a message that nobody waits for yet, std::bad_alloc leaves deliver(), begin()
// and announce(), and the message is still its transport's; a receive that needs memory and does
// not get it ends with an error, and start() throws nothing.
//
// Not thread-safe: whoever drives the engine uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <unordered_set>

#include "core/mailbox/flow_control.hpp"
#include "core/mailbox/incoming_messages.hpp"
#include "core/mailbox/stored_messages.hpp"
#include "core/mailbox/tag_buckets.hpp"
#include "core/message_heap.hpp"
#include "core/operation.hpp"
#include "core/scheduler.hpp"

namespace pith {

class Mailbox {
 public:
  // `peers`: how many peers transports may name; their state is created when first used.
  Mailbox(Scheduler& scheduler, int peers) : scheduler_(scheduler), flow_(peers) {}
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // Bytes from one peer that nobody waits for, beyond which a transport stops taking more.
  std::size_t backlog_limit = std::size_t{1} << 20;
  // The same for all peers together; 2 MiB at first. One message of each is taken all the same: a
  // rank that took none could hold back somebody whose messages it needs in the end.
  void limit_total_backlog(std::size_t bytes) { flow_.total_limit = bytes; }

  // Of receives that begin here; null: nobody looks. See Scheduler for how they end.
  OperationObserver* observer = nullptr;

  // True: complete at once, `receive.error` says how. False: the waiter will be resumed.
  bool start(Receive& receive) {
    if (observer) [[unlikely]]
      return start_observed(receive);
    return start_unobserved(receive);
  }

  enum class Taken { copied, kept };
  // A whole message lies at `data`, in slot `slot` of `owner`. `copied`: the slot is free again.
  // `kept`: `owner->release_slot(peer, slot)` follows later. owner null: always copied.
  Taken deliver(int peer, const Header& header, const std::byte* data, SlotOwner* owner,
                std::uint64_t slot);

  // A message that arrives piece by piece.
  using Incoming = IncomingMessage;
  Incoming& begin(int peer, const Header& header);
  void finish(Incoming& incoming);
  // The rest will never come: a receive that waits for it ends with `error`.
  void abandon(Incoming& incoming, const Error& error);

  // A message that stays with its sender until somebody here wants it: then `source` is asked to
  // fetch it. Null: nobody ever will.
  Incoming* announce(int peer, const Header& header, MessageSource& source, std::uint64_t message);

  bool accepts(int peer) const { return flow_.accepts(peer, backlog_limit); }
  bool awaited(int peer) const { return flow_.awaited(peer); }

  // Who finds out what the ranks disagree about. Where it is set, a receive goes on waiting when
  // its message belongs to another call, for whoever is told will revoke the communicator; else it
  // fails. May be called several times for one call.
  std::function<void(int peer, std::uint32_t call)> on_dispute;

  // For a communicator of which no call runs, up to `call` all are done: a message that nobody took
  // shows a peer that was in another call. That peer and call; peer -1: none.
  struct LeftOver {
    int peer = -1;
    std::uint32_t call = 0;
  };
  LeftOver find_left_over(std::uint32_t comm, std::uint32_t call) const;
  // Disputes receives whose peer is in another call, though it sent nothing of the name they wait
  // for: a message of the same call number with another digest tells. Cheap, but not for every
  // turn.
  bool dispute_mismatched();

  // Every receive of this communicator that waits ends with `error`; nothing of it is touched
  // afterwards, but scratch that is withheld. The communicator's `revoked` must have been set. What
  // is stored for it is dropped, as by forget().
  void quiesce(const CommState& comm, const Error& error);
  // Drops what is stored for the communicator, now and in future. Ids are never used twice.
  void forget(std::uint32_t comm);

  std::size_t waiting() const { return flow_.waiting(); }
  // Buffers of ours that hold a message: stored, arriving, or lent.
  std::size_t buffers_out() const { return heap_.out(); }
  // Memory of those, and of what is kept for the next ones.
  std::size_t buffer_bytes() const { return heap_.bytes(); }
  // Of all peers: messages that are stored or arriving for nobody, with what it takes to keep them.
  std::size_t backlog() const { return flow_.backlog(); }
  // For deadlock reports: calls f(peer, tag) for each receive that waits.
  template <class F>
  void for_each_waiting(F&& f) const {
    waiting_.for_each([&](const Operation& operation) {
      f(operation.peer, static_cast<const Receive&>(operation).tag);
    });
    for (const Incoming* incoming : incoming_.active()) {
      if (incoming->receive_) f(incoming->peer, incoming->receive_->tag);
    }
  }

 private:
  class Heap final : public MessageHeap {};

  bool start_observed(Receive& receive);
  bool start_unobserved(Receive& receive);
  bool wait(Receive& receive);
  Receive* take_waiting(int peer, const Header& header);
  StoredMessage& store(int peer, const Header& header);
  void store(Incoming& incoming);
  void free_stored(StoredMessage& stored);
  void give_to(Receive& receive, Incoming& incoming);
  bool fetch(Incoming& incoming);
  void fail(Receive& receive, Error error);

  Scheduler& scheduler_;
  FlowControl flow_;
  TagBuckets<Operation> waiting_;  // receives
  StoredMessages stored_;
  IncomingMessages incoming_;
  std::unordered_set<std::uint32_t> closed_;  // communicators that are forgotten
  Heap heap_;
};

}  // namespace pith
