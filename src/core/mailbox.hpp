// Matches arriving messages with waiting receives, for all transports of one engine.
//
// A message without a waiting receive is stored: small ones are copied, larger ones stay in their
// transport's slot until they are received or their communicator is forgotten. This gives flow
// control: a transport takes messages from a peer only while `accepts(peer)`, so a rank far ahead
// fills its own wire and then waits. A rank that waits for a peer's message always accepts from
// that peer, which keeps back-pressure from turning into deadlock.
//
// If there is no memory to store a message, deliver(), begin() and announce() throw std::bad_alloc,
// and the message remains with its transport. A receive that needs memory and gets none ends with
// an error; start() throws nothing.
//
// Not thread-safe: used by the driver of the engine.
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
  // `peers`: the number of peers. The state of a peer is created when it is first used.
  Mailbox(Scheduler& scheduler, int peers) : scheduler_(scheduler), flow_(peers) {}
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // Bytes stored from one peer beyond which a transport takes no more from it.
  std::size_t backlog_limit = std::size_t{1} << 20;
  // The same for all peers together; 2 MiB at first. One message of each peer is taken all the
  // same: a rank that took none could hold back a peer whose messages it needs in the end.
  void limit_total_backlog(std::size_t bytes) { flow_.total_limit = bytes; }

  // Observes receives that begin here; null: none. See Scheduler for how they end.
  OperationObserver* observer = nullptr;

  // True: the receive is complete, and `receive.error` is its result. False: its waiter is resumed.
  bool start(Receive& receive) {
    if (observer) [[unlikely]]
      return start_observed(receive);
    return start_unobserved(receive);
  }

  enum class Taken { copied, kept };
  // A whole message lies at `data`, in slot `slot` of `owner`. `copied`: the slot is free again.
  // `kept`: `owner->release_slot(peer, slot)` follows later. A null owner: always copied.
  Taken deliver(int peer, const Header& header, const std::byte* data, SlotOwner* owner,
                std::uint64_t slot);

  // A message that arrives piece by piece.
  using Incoming = IncomingMessage;
  Incoming& begin(int peer, const Header& header);
  void finish(Incoming& incoming);
  // The rest of the message will never arrive: a receive that waits for it ends with `error`.
  void abandon(Incoming& incoming, const Error& error);

  // A message that stays with its sender until a receive takes it; then `source` is asked to fetch
  // it. Null: it will never be fetched.
  Incoming* announce(int peer, const Header& header, MessageSource& source, std::uint64_t message);

  bool accepts(int peer) const { return flow_.accepts(peer, backlog_limit); }
  bool awaited(int peer) const { return flow_.awaited(peer); }

  // Called when a receive's message belongs to another call, possibly several times for one call.
  // If set, the receive goes on waiting, because the function gets the communicator revoked; else
  // it fails.
  std::function<void(int peer, std::uint32_t call)> on_dispute;

  // For a communicator on which no call runs and all calls up to `call` have ended: a stored
  // message shows a peer that was in another call. Returns that peer and call; peer -1: none.
  struct LeftOver {
    int peer = -1;
    std::uint32_t call = 0;
  };
  LeftOver find_left_over(std::uint32_t comm, std::uint32_t call) const;
  // Disputes receives whose peer is in another call but sent no message with their tag: a message
  // with the same call number and another digest shows this. Cheap, but too slow for every turn.
  bool dispute_mismatched();

  // Ends every waiting receive of this communicator with `error`. Their memory is not touched
  // afterwards, except withheld scratch. The communicator's `revoked` must be set already. Stored
  // messages are dropped, as by forget().
  void quiesce(const CommState& comm, const Error& error);
  // Drops the communicator's messages, stored and future ones. Ids are never reused.
  void forget(std::uint32_t comm);

  std::size_t waiting() const { return flow_.waiting(); }
  // The number of heap buffers that hold a message: stored, arriving, or lent.
  std::size_t buffers_out() const { return heap_.out(); }
  // Bytes of these buffers and of those kept for reuse.
  std::size_t buffer_bytes() const { return heap_.bytes(); }
  // Counts of waiting receives, and bytes of messages that are stored or arriving without one, with
  // the overhead of keeping them.
  const FlowControl& flow() const { return flow_; }
  // For deadlock reports: calls f(peer, tag) for each waiting receive.
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
  std::unordered_set<std::uint32_t> closed_;  // forgotten communicators
  Heap heap_;
};

}  // namespace pith
