#include "core/mailbox.hpp"

#include "core/compute.hpp"
#include "core/copy.hpp"
#include "core/mailbox/hand_over.hpp"
#include "core/pair_message.hpp"

namespace pith {

Mailbox::~Mailbox() {
  stored_.for_each([&](const StoredMessage& stored) {
    if (stored.owner == &heap_) heap_.give(buffer_at(stored.slot));
  });
  for (Incoming* incoming : incoming_.active()) {
    if (incoming->owned_) heap_.give(incoming->owned_);
  }
}

// Returns false if there is no memory for the peer's counts.
bool Mailbox::wait(Receive& receive) {
  try {
    flow_.begin_wait(receive.peer);
  } catch (const std::bad_alloc&) {
    receive.error = out_of_memory();
    return false;
  }
  waiting_.append(receive.peer, receive.tag, receive);
  return true;
}

Receive* Mailbox::take_waiting(int peer, const Header& header) {
  const Tag tag = header.tag();
  Operation* found = waiting_.take(peer, tag, [&](const Operation& operation) {
    const auto& receive = static_cast<const Receive&>(operation);
    return receive.peer == peer && receive.tag == tag &&
           (receive.digest == header.digest || tag.lane == pair_lane || !on_dispute);
  });
  if (!found) return nullptr;
  flow_.end_wait(peer);
  return static_cast<Receive*>(found);
}

// Everything that may throw runs before anything is linked.
StoredMessage& Mailbox::store(int peer, const Header& header) {
  stored_.reserve();
  flow_.add_backlog(peer, StoredMessage::room(header));
  return stored_.add(peer, header);
}

void Mailbox::free_stored(StoredMessage& stored) {
  flow_.remove_backlog(stored.peer, StoredMessage::room(stored.header));
  stored_.recycle(stored);
}

bool Mailbox::start_observed(Receive& receive) {
  observer->begins(receive);
  const bool complete = start_unobserved(receive);
  if (complete) observer->ends(receive);
  return complete;
}

bool Mailbox::start_unobserved(Receive& receive) {
  if (receive.comm->revoked) {
    receive.error = receive.comm->revoked;
    return true;
  }
  StoredMessage* stored = stored_.take(receive, !on_dispute);
  if (!stored) return !wait(receive);
  if (!stored->incoming) {
    hand_over(heap_, receive, *stored);
    free_stored(*stored);
    return true;
  }
  // The message is still arriving. It now belongs to this receive, which completes with the last
  // byte.
  Incoming& incoming = *stored->incoming;
  incoming.stored_ = nullptr;
  free_stored(*stored);
  give_to(receive, incoming);
  if (!incoming.source_) return false;
  MessageSource& source = *incoming.source_;
  const std::uint64_t message = incoming.message;
  if (!fetch(incoming)) source.drop(message);
  return false;
}

// The receive counts as waiting until the last byte has arrived, so that its transport keeps
// reading. Throws nothing: the peer's counts exist, because its message was stored or its receive
// waited.
void Mailbox::give_to(Receive& receive, Incoming& incoming) {
  incoming.receive_ = &receive;
  flow_.begin_wait(receive.peer);
}

Mailbox::Taken Mailbox::deliver(int peer, const Header& header, const std::byte* data,
                                SlotOwner* owner, std::uint64_t slot) {
  if (Receive* receive = take_waiting(peer, header)) {
    Taken taken = Taken::copied;
    if (check_message(*receive, header)) {
      if (!receive->borrow) {
        copy_bytes(receive->into, data, header.length);
      } else if (owner) {
        receive->lease = Lease(data, header.length, owner, peer, slot);
        taken = Taken::kept;
      } else {
        lend_copy(heap_, *receive, header, data);
      }
    }
    scheduler_.complete(*receive);
    return taken;
  }
  if (closed_.contains(header.comm)) return Taken::copied;
  StoredMessage& stored = store(peer, header);
  if (header.length <= StoredMessage::inline_bytes) {
    copy_bytes(stored.small.data(), data, header.length);
    stored.data = stored.small.data();
    return Taken::copied;
  }
  if (owner) {
    stored.keep(data, owner, slot);
    return Taken::kept;
  }
  std::byte* owned = nullptr;
  try {
    owned = heap_.take(header.length);
  } catch (const std::bad_alloc&) {
    stored_.take(stored);
    free_stored(stored);
    throw;
  }
  copy_bytes(owned, data, header.length);
  stored.keep(owned, &heap_, slot_of(owned));
  return Taken::copied;
}

// No receive takes messages of an ended communicator, so they get no memory.
Mailbox::Incoming& Mailbox::begin(int peer, const Header& header) {
  Incoming& incoming = incoming_.take(peer, header);
  Receive* receive = take_waiting(peer, header);
  if (receive) give_to(*receive, incoming);
  if (receive && !receive->borrow && fits(*receive, header)) {
    incoming.data = receive->into;
    return incoming;
  }
  if (!receive && closed_.contains(header.comm)) return incoming;
  try {
    if (!receive) store(incoming);
    incoming.data = incoming.owned_ = heap_.take(header.length);
  } catch (const std::bad_alloc&) {
    abandon(incoming, out_of_memory());
    throw;
  }
  return incoming;
}

void Mailbox::store(Incoming& incoming) {
  incoming.stored_ = &store(incoming.peer, incoming.header);
  incoming.stored_->incoming = &incoming;
}

Mailbox::Incoming* Mailbox::announce(int peer, const Header& header, MessageSource& source,
                                     std::uint64_t message) {
  Incoming& incoming = incoming_.take(peer, header);
  incoming.source_ = &source;
  incoming.message = message;
  if (Receive* receive = take_waiting(peer, header)) {
    give_to(*receive, incoming);
    return fetch(incoming) ? &incoming : nullptr;
  }
  if (closed_.contains(header.comm)) {
    incoming_.recycle(incoming);
    return nullptr;
  }
  try {
    store(incoming);
  } catch (const std::bad_alloc&) {
    incoming_.recycle(incoming);
    throw;
  }
  return &incoming;
}

// The network writes only to memory that stays until it has finished, or that can be taken from it.
// Returns false if there is no memory for the message; its receive has then ended.
bool Mailbox::fetch(Incoming& incoming) {
  const Receive& receive = *incoming.receive_;
  if (receive.direct && fits(receive, incoming.header)) {
    incoming.data = receive.direct->bytes().data;
    incoming.memory = receive.direct->network_memory();
    incoming.direct = receive.direct;
  } else if (incoming.source_->writes_to_callers() && !receive.borrow &&
             fits(receive, incoming.header)) {
    incoming.data = receive.into;
  } else {
    try {
      incoming.data = incoming.owned_ = heap_.take(incoming.header.length);
    } catch (const std::bad_alloc&) {
      abandon(incoming, out_of_memory());
      return false;
    }
  }
  incoming.source_->fetch(incoming);
  incoming.direct = nullptr;
  return true;
}

void Mailbox::finish(Incoming& incoming) {
  incoming_.recycle(incoming);
  if (Receive* receive = incoming.receive_) {
    flow_.end_wait(incoming.peer);
    if (incoming.owned_) {
      hand_over_owned(heap_, *receive, incoming.header, incoming.owned_);
    } else {
      receive->length = incoming.header.length;
      receive->landed = incoming.source_ != nullptr && receive->direct != nullptr;
    }
    return scheduler_.complete(*receive);
  }
  if (incoming.stored_) {
    incoming.stored_->incoming = nullptr;
    return incoming.stored_->keep(incoming.owned_, &heap_, slot_of(incoming.owned_));
  }
  if (incoming.owned_) heap_.give(incoming.owned_);
}

void Mailbox::abandon(Incoming& incoming, const Error& error) {
  incoming_.recycle(incoming);
  if (StoredMessage* stored = incoming.stored_) {
    stored_.take(*stored);
    free_stored(*stored);
  }
  if (incoming.owned_) heap_.give(incoming.owned_);
  if (incoming.receive_) fail(*incoming.receive_, error);
}

// Ends a receive that counts as waiting and is in no list any more.
void Mailbox::fail(Receive& receive, Error error) {
  flow_.end_wait(receive.peer);
  receive.error = std::move(error);
  scheduler_.complete(receive);
}

Mailbox::LeftOver Mailbox::find_left_over(std::uint32_t comm, std::uint32_t call) const {
  const StoredMessage* left = stored_.find_left_over(comm, call);
  if (!left) [[likely]]
    return {};
  return {left->peer, left->header.call};
}

bool Mailbox::dispute_mismatched() {
  if (flow_.waiting() == 0 || stored_.empty()) return false;
  bool found = false;
  stored_.for_each([&](const StoredMessage& stored) {
    const Header header = stored.header;
    const int peer = stored.peer;
    if (!flow_.awaited(peer) || header.lane == pair_lane) return;
    const auto mismatched = [&](const Operation& operation) {
      const auto& receive = static_cast<const Receive&>(operation);
      return receive.peer == peer && receive.tag.comm == header.comm &&
             receive.tag.call == header.call && receive.tag.lane != pair_lane &&
             receive.digest != header.digest;
    };
    if (on_dispute) {
      if (waiting_.find(mismatched)) on_dispute(peer, header.call);
      return;
    }
    waiting_.take_all(mismatched, [&](Operation& operation) {
      fail(static_cast<Receive&>(operation), another_call(peer, header.call));
      found = true;
    });
  });
  return found;
}

void Mailbox::quiesce(const CommState& comm, const Error& error) {
  waiting_.take_all([&](const Operation& operation) { return operation.comm == &comm; },
                    [&](Operation& operation) { fail(static_cast<Receive&>(operation), error); });
  for (Incoming* incoming : incoming_.active()) {
    if (!incoming->receive_ || incoming->receive_->comm != &comm) continue;
    // The rest of the message must not be written to the caller's memory.
    Scratch* direct = incoming->receive_->direct;
    if (!incoming->owned_ && direct && incoming->source_ &&
        !incoming->source_->writes_to_callers()) {
      incoming->withheld_ = direct->withhold();
    } else if (!incoming->owned_) {
      if (incoming->source_) incoming->source_->stop(incoming->message);
      incoming->data = nullptr;
    }
    fail(*std::exchange(incoming->receive_, nullptr), error);
  }
  // Messages that no receive takes would hold back the peers' messages in other communicators, and
  // senders of announced ones wait for them to be fetched or dropped.
  forget(comm.id);
}

void Mailbox::forget(std::uint32_t comm) {
  closed_.insert(comm);
  stored_.take_all(comm, [&](StoredMessage& stored) {
    if (Incoming* incoming = stored.incoming) {
      incoming->stored_ = nullptr;
      if (MessageSource* source = incoming->source_) {
        incoming_.recycle(*incoming);
        source->drop(incoming->message);
      }
    } else if (stored.owner) {
      stored.owner->release_slot(stored.peer, stored.slot);
    }
    free_stored(stored);
  });
}

}  // namespace pith
