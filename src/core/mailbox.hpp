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

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_set>
#include <vector>

#include "core/operation.hpp"
#include "core/scheduler.hpp"

namespace pith {

class MessageSource;

class Mailbox {
 public:
  // `peers`: how many peers transports may name; their state is created when first used.
  Mailbox(Scheduler& scheduler, int peers);
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  static constexpr std::size_t inline_bytes = 64;
  // Bytes from one peer that nobody waits for, beyond which a transport stops taking more.
  std::size_t backlog_limit = std::size_t{1} << 20;
  // The same for all peers together; 2 MiB at first. One message of each is taken all the same: a
  // rank that took none could hold back somebody whose messages it needs in the end.
  void limit_total_backlog(std::size_t bytes);

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

  struct Stored;

  // A message that arrives piece by piece. `data` has room for header.length bytes and may move
  // until `finish`: read it anew for each piece. Null: nobody wants the bytes.
  struct Incoming {
    Header header;
    std::byte* data = nullptr;
    std::size_t arrived = 0;  // for the transport's use
    int peer = -1;
    std::uint64_t message = 0;  // the source's name for it
    std::uint64_t memory = 0;   // where `data` lies, as Compute::network_memory(); 0: the host's

   private:
    friend class Mailbox;
    Receive* receive_ = nullptr;       // null: stored, or its receive was aborted
    Stored* stored_ = nullptr;         // where it will be found by a later receive
    std::byte* owned_ = nullptr;       // null: straight into the receiver's buffer
    MessageSource* source_ = nullptr;  // of an announced one
    std::shared_ptr<void> withheld_;   // a receiver's buffer that is still written to
  };
  Incoming& begin(int peer, const Header& header);
  void finish(Incoming& incoming);
  // The rest will never come: a receive that waits for it ends with `error`.
  void abandon(Incoming& incoming, const Error& error);

  // A message that stays with its sender until somebody here wants it: then `source` is asked to
  // fetch it. Null: nobody ever will.
  Incoming* announce(int peer, const Header& header, MessageSource& source, std::uint64_t message);

  bool accepts(int peer) const;
  bool awaited(int peer) const { return state(peer).waiting != 0; }

  // Who finds out what the ranks disagree about. Where it is set, a receive goes on waiting when
  // its message belongs to another call, for whoever is told will revoke the communicator; else it
  // fails. May be called several times for one call.
  std::function<void(int peer, std::uint32_t call)> on_dispute;

  static Error another_call(int peer, std::uint32_t call);

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

  std::size_t waiting() const { return waiting_total_; }
  // Buffers of ours that hold a message: stored, arriving, or lent.
  std::size_t buffers_out() const;
  // Memory of those, and of what is kept for the next ones.
  std::size_t buffer_bytes() const;
  // Of all peers: messages that are stored or arriving for nobody, with what it takes to keep them.
  std::size_t backlog() const;
  // For deadlock reports: calls f(peer, tag) for each receive that waits.
  template <class F>
  void for_each_waiting(F&& f) const {
    for (const Operation* head : waiting_) {
      for (; head; head = head->next) f(head->peer, static_cast<const Receive*>(head)->tag);
    }
    for (const Incoming* incoming : active_incoming_) {
      if (incoming->receive_) f(incoming->peer, incoming->receive_->tag);
    }
  }

 private:
  struct PeerState {
    std::uint32_t waiting = 0;
    std::size_t backlog = 0;
  };
  static constexpr std::size_t page = 64;
  static constexpr std::size_t buckets = 64;

  static std::size_t bucket_of(int peer, const Tag& tag) {
    std::uint64_t mix = tag.call * 0x9E3779B1u + tag.step * 0x85EBCA77u + tag.comm * 0xC2B2AE3Du;
    mix += static_cast<std::uint64_t>(peer) * 0x27D4EB2Fu + tag.lane * 0x165667B1u;
    return (mix ^ (mix >> 15) ^ (mix >> 7)) & (buckets - 1);
  }
  Incoming& take_incoming(int peer, const Header& header);
  void free_incoming(Incoming& incoming);
  void give_to(Receive& receive, Incoming& incoming);
  void store(Incoming& incoming);
  bool fetch(Incoming& incoming);
  void drop(Incoming& incoming);
  static bool fits(const Receive& receive, const Header& header);
  static std::size_t room_of(const Header& header);
  bool start_observed(Receive& receive);
  bool start_unobserved(Receive& receive);
  const PeerState& state(int peer) const;
  PeerState& state(int peer);
  Receive* take_waiting(int peer, const Header& header);
  Stored* take_stored(const Receive& receive);
  void add_spare_stored();
  Stored* new_stored(int peer, const Header& header);
  void free_stored(Stored* stored);
  void discard(Stored& stored);
  void keep_owned(Stored& stored, std::byte* owned);
  void lend_copy(Receive& receive, const Header& header, const std::byte* data);
  void add_waiting(Receive& receive);
  bool wait(Receive& receive);
  bool check(Receive& receive, const Header& header);
  bool dispute(int peer, const Header& header);
  void hand_over(Receive& receive, Stored* stored);
  void hand_over_owned(Receive& receive, const Header& header, std::byte* owned);
  void fail(Receive& receive, Error error);

  Scheduler& scheduler_;
  std::array<Operation*, buckets> waiting_{};
  std::array<Operation*, buckets> waiting_tail_{};
  std::array<Stored*, buckets> stored_{};
  std::array<Stored*, buckets> stored_tail_{};
  std::size_t waiting_total_ = 0;
  std::vector<std::unique_ptr<std::array<PeerState, page>>> peers_;
  std::unordered_set<std::uint32_t> closed_;
  std::vector<std::unique_ptr<Stored>> all_stored_;
  std::vector<Stored*> spare_stored_;
  std::vector<std::unique_ptr<Incoming>> all_incoming_;
  std::vector<Incoming*> spare_incoming_;
  std::vector<Incoming*> active_incoming_;
  class HeapSlots;
  std::unique_ptr<HeapSlots> heap_slots_;
};

// Who can fetch messages that were announced.
class MessageSource {
 public:
  // All of it, to `incoming.data`, which does not move any more. Mailbox::finish or abandon follow,
  // but not before this returns.
  virtual void fetch(Mailbox::Incoming& incoming) = 0;
  // Nobody wants it: the mailbox has forgotten it.
  virtual void drop(std::uint64_t message) = 0;

 protected:
  ~MessageSource() = default;
};

}  // namespace pith
