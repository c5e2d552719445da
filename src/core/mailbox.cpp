#include "core/mailbox.hpp"

#include <fmt/format.h>

#include "core/call_number.hpp"
#include "core/compute.hpp"
#include "core/copy.hpp"
#include "core/message_heap.hpp"
#include "core/pair_message.hpp"

namespace pith {

struct Mailbox::Stored {
  Header header;
  int peer = -1;
  const std::byte* data = nullptr;
  SlotOwner* owner = nullptr;  // null: `small` holds the bytes
  std::uint64_t slot = 0;
  Incoming* incoming = nullptr;  // still arriving
  Stored* next = nullptr;
  std::array<std::byte, inline_bytes> small;
};

// Its own buffers, and what lies in them and in slots of transports for nobody, of all peers.
class Mailbox::HeapSlots final : public MessageHeap {
 public:
  std::size_t backlog = 0;
  std::size_t backlog_limit = std::size_t{2} << 20;
};

namespace {

std::uint64_t slot_of(std::byte* buffer) { return reinterpret_cast<std::uint64_t>(buffer); }
std::byte* slot_at(std::uint64_t slot) { return reinterpret_cast<std::byte*>(slot); }

Error another_length(int peer, std::uint64_t sent, std::uint64_t expected) {
  const PairDigest theirs = PairDigest::decode(sent);
  const PairDigest ours = PairDigest::decode(expected);
  return {Code::invalid_usage,
          fmt::format("rank {} sent {} elements of type {} where {} of type {} were to be received",
                      peer, theirs.count, name_of(theirs.type), ours.count, name_of(ours.type)),
          peer};
}

template <class Node, class Match>
Node* unlink(Node*& head, Node*& tail, Match match) {
  Node* previous = nullptr;
  for (Node* node = head; node; previous = node, node = static_cast<Node*>(node->next)) {
    if (!match(*node)) continue;
    auto* next = static_cast<Node*>(node->next);
    (previous ? *reinterpret_cast<Node**>(&previous->next) : head) = next;
    if (tail == node) tail = previous;
    node->next = nullptr;
    return node;
  }
  return nullptr;
}

template <class Node>
void append(Node*& head, Node*& tail, Node& node) {
  node.next = nullptr;
  if (tail) {
    tail->next = &node;
  } else {
    head = &node;
  }
  tail = &node;
}

}  // namespace

Error Mailbox::another_call(int peer, std::uint32_t call) {
  return {
      Code::invalid_usage,
      fmt::format("rank {} called another collective, or this one with other arguments, as call "
                  "{} of this communicator",
                  peer, call),
      peer};
}

Mailbox::Mailbox(Scheduler& scheduler, int peers)
    : scheduler_(scheduler),
      peers_((static_cast<std::size_t>(peers) + page - 1) / page),
      heap_slots_(std::make_unique<HeapSlots>()) {
  add_spare_stored();
}

Mailbox::~Mailbox() {
  for (Stored* stored : stored_) {
    for (; stored; stored = stored->next) {
      if (stored->owner == heap_slots_.get()) heap_slots_->give(slot_at(stored->slot));
    }
  }
  for (Incoming* incoming : active_incoming_) {
    if (incoming->owned_) heap_slots_->give(incoming->owned_);
  }
}

std::size_t Mailbox::buffers_out() const { return heap_slots_->out(); }
std::size_t Mailbox::buffer_bytes() const { return heap_slots_->bytes(); }
std::size_t Mailbox::backlog() const { return heap_slots_->backlog; }
void Mailbox::limit_total_backlog(std::size_t bytes) { heap_slots_->backlog_limit = bytes; }

Mailbox::PeerState& Mailbox::state(int peer) {
  auto& slot = peers_[static_cast<std::size_t>(peer) / page];
  if (!slot) slot = std::make_unique<std::array<PeerState, page>>();
  return (*slot)[static_cast<std::size_t>(peer) % page];
}

const Mailbox::PeerState& Mailbox::state(int peer) const {
  static const PeerState untouched;
  const auto& slot = peers_[static_cast<std::size_t>(peer) / page];
  return slot ? (*slot)[static_cast<std::size_t>(peer) % page] : untouched;
}

bool Mailbox::accepts(int peer) const {
  const PeerState& s = state(peer);
  if (s.waiting != 0 || s.backlog == 0) return true;
  return s.backlog < backlog_limit && heap_slots_->backlog < heap_slots_->backlog_limit;
}

void Mailbox::add_waiting(Receive& receive) {
  ++state(receive.peer).waiting;
  ++waiting_total_;
  const std::size_t b = bucket_of(receive.peer, receive.tag);
  append<Operation>(waiting_[b], waiting_tail_[b], receive);
}

// False: there is no memory for the peer's state.
bool Mailbox::wait(Receive& receive) {
  try {
    add_waiting(receive);
  } catch (const std::bad_alloc&) {
    receive.error = out_of_memory();
    return false;
  }
  return true;
}

Receive* Mailbox::take_waiting(int peer, const Header& header) {
  const Tag tag = header.tag();
  const std::size_t b = bucket_of(peer, tag);
  if (!waiting_[b]) return nullptr;
  Operation* found = unlink(waiting_[b], waiting_tail_[b], [&](Operation& operation) {
    const auto& receive = static_cast<Receive&>(operation);
    return receive.peer == peer && receive.tag == tag &&
           (receive.digest == header.digest || tag.lane == pair_lane || !on_dispute);
  });
  if (!found) return nullptr;
  --state(peer).waiting;
  --waiting_total_;
  return static_cast<Receive*>(found);
}

Mailbox::Stored* Mailbox::take_stored(const Receive& receive) {
  const std::size_t b = bucket_of(receive.peer, receive.tag);
  if (!stored_[b]) return nullptr;
  return unlink(stored_[b], stored_tail_[b], [&](Stored& stored) {
    return stored.peer == receive.peer && stored.header.tag() == receive.tag &&
           (stored.header.digest == receive.digest || receive.tag.lane == pair_lane || !on_dispute);
  });
}

// Many at once: how far peers run ahead varies, and steady state is to allocate nothing.
void Mailbox::add_spare_stored() {
  constexpr std::size_t batch = 64;
  all_stored_.reserve(all_stored_.size() + batch);
  spare_stored_.reserve(all_stored_.size() + batch);
  for (std::size_t i = 0; i < batch; ++i) {
    all_stored_.push_back(std::make_unique<Stored>());
    spare_stored_.push_back(all_stored_.back().get());
  }
}

Mailbox::Stored* Mailbox::new_stored(int peer, const Header& header) {
  if (spare_stored_.empty()) add_spare_stored();
  const std::size_t room = room_of(header);
  state(peer).backlog += room;  // may have to make the peer's state: before anything is linked
  heap_slots_->backlog += room;
  Stored* stored = spare_stored_.back();
  spare_stored_.pop_back();
  stored->header = header;
  stored->peer = peer;
  stored->owner = nullptr;
  stored->incoming = nullptr;
  const std::size_t b = bucket_of(peer, header.tag());
  append(stored_[b], stored_tail_[b], *stored);
  return stored;
}

std::size_t Mailbox::room_of(const Header& header) { return header.length + sizeof(Stored); }

void Mailbox::free_stored(Stored* stored) {
  const std::size_t room = room_of(stored->header);
  state(stored->peer).backlog -= room;
  heap_slots_->backlog -= room;
  spare_stored_.push_back(stored);
}

void Mailbox::discard(Stored& stored) {
  const std::size_t b = bucket_of(stored.peer, stored.header.tag());
  unlink(stored_[b], stored_tail_[b], [&](Stored& other) { return &other == &stored; });
  free_stored(&stored);
}

// Lends a copy of the message; a receive for which there is no memory ends with an error.
void Mailbox::lend_copy(Receive& receive, const Header& header, const std::byte* data) {
  std::byte* owned = nullptr;
  try {
    owned = heap_slots_->take(header.length);
  } catch (const std::bad_alloc&) {
    receive.error = out_of_memory();
    return;
  }
  copy_bytes(owned, data, header.length);
  receive.lease = Lease(owned, header.length, heap_slots_.get(), receive.peer, slot_of(owned));
}

// Sets receive.error and returns false where the message is not the one the receiver means.
bool Mailbox::check(Receive& receive, const Header& header) {
  if (receive.digest != header.digest) {
    receive.error = header.lane == pair_lane
                        ? another_length(receive.peer, header.digest, receive.digest)
                        : another_call(receive.peer, header.call);
    return false;
  }
  if (header.length > receive.room) {
    receive.error =
        Error(Code::invalid_usage,
              fmt::format("rank {} sent {} bytes where at most {} were expected (call {}, step {})",
                          receive.peer, header.length, receive.room, header.call, header.step),
              receive.peer);
    return false;
  }
  receive.length = header.length;
  return true;
}

void Mailbox::hand_over_owned(Receive& receive, const Header& header, std::byte* owned) {
  if (check(receive, header)) {
    if (receive.borrow) {
      receive.lease = Lease(owned, header.length, heap_slots_.get(), receive.peer, slot_of(owned));
      return;
    }
    copy_bytes(receive.into, owned, header.length);
  }
  heap_slots_->give(owned);
}

void Mailbox::hand_over(Receive& receive, Stored* stored) {
  const Header& header = stored->header;
  if (!stored->owner) {
    if (check(receive, header)) {
      if (receive.borrow) {
        lend_copy(receive, header, stored->data);
      } else {
        copy_bytes(receive.into, stored->data, header.length);
      }
    }
    return free_stored(stored);
  }
  Lease lease(stored->data, header.length, stored->owner, stored->peer, stored->slot);
  if (check(receive, header)) {
    if (receive.borrow) {
      receive.lease = std::move(lease);
    } else {
      copy_bytes(receive.into, stored->data, header.length);
    }
  }
  free_stored(stored);
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
  Stored* stored = take_stored(receive);
  if (!stored) return !wait(receive);
  if (!stored->incoming) {
    hand_over(receive, stored);
    return true;
  }
  // Still arriving: it is this receive's now, and completes with its last byte.
  Incoming& incoming = *stored->incoming;
  incoming.stored_ = nullptr;
  free_stored(stored);
  give_to(receive, incoming);
  if (!incoming.source_) return false;
  MessageSource& source = *incoming.source_;
  const std::uint64_t message = incoming.message;
  if (!fetch(incoming)) source.drop(message);
  return false;
}

// Counted as waiting until the last byte is there, so that its transport keeps reading.
void Mailbox::give_to(Receive& receive, Incoming& incoming) {
  incoming.receive_ = &receive;
  ++state(receive.peer).waiting;
  ++waiting_total_;
}

Mailbox::Taken Mailbox::deliver(int peer, const Header& header, const std::byte* data,
                                SlotOwner* owner, std::uint64_t slot) {
  if (Receive* receive = take_waiting(peer, header)) {
    Taken taken = Taken::copied;
    if (check(*receive, header)) {
      if (!receive->borrow) {
        copy_bytes(receive->into, data, header.length);
      } else if (owner) {
        receive->lease = Lease(data, header.length, owner, peer, slot);
        taken = Taken::kept;
      } else {
        lend_copy(*receive, header, data);
      }
    }
    scheduler_.complete(*receive);
    return taken;
  }
  if (closed_.contains(header.comm)) return Taken::copied;
  Stored* stored = new_stored(peer, header);
  if (header.length <= inline_bytes) {
    copy_bytes(stored->small.data(), data, header.length);
    stored->data = stored->small.data();
    return Taken::copied;
  }
  if (owner) {
    stored->data = data;
    stored->owner = owner;
    stored->slot = slot;
    return Taken::kept;
  }
  try {
    keep_owned(*stored, heap_slots_->take(header.length));
  } catch (const std::bad_alloc&) {
    discard(*stored);
    throw;
  }
  copy_bytes(slot_at(stored->slot), data, header.length);
  return Taken::copied;
}

void Mailbox::keep_owned(Stored& stored, std::byte* owned) {
  stored.data = owned;
  stored.owner = heap_slots_.get();
  stored.slot = slot_of(owned);
}

Mailbox::Incoming& Mailbox::take_incoming(int peer, const Header& header) {
  if (spare_incoming_.empty()) {
    all_incoming_.push_back(std::make_unique<Incoming>());
    spare_incoming_.reserve(all_incoming_.capacity());
    active_incoming_.reserve(all_incoming_.capacity());
    spare_incoming_.push_back(all_incoming_.back().get());
  }
  Incoming& incoming = *spare_incoming_.back();
  spare_incoming_.pop_back();
  active_incoming_.push_back(&incoming);
  incoming.header = header;
  incoming.peer = peer;
  incoming.arrived = 0;
  incoming.memory = 0;
  incoming.data = nullptr;
  incoming.receive_ = nullptr;
  incoming.stored_ = nullptr;
  incoming.owned_ = nullptr;
  incoming.source_ = nullptr;
  return incoming;
}

void Mailbox::free_incoming(Incoming& incoming) {
  std::erase(active_incoming_, &incoming);
  incoming.withheld_.reset();
  spare_incoming_.push_back(&incoming);
}

bool Mailbox::fits(const Receive& receive, const Header& header) {
  return header.length <= receive.room && receive.digest == header.digest;
}

// Of an ended communicator nobody wants the bytes, and they take no memory.
Mailbox::Incoming& Mailbox::begin(int peer, const Header& header) {
  Incoming& incoming = take_incoming(peer, header);
  Receive* receive = take_waiting(peer, header);
  if (receive) give_to(*receive, incoming);
  if (receive && !receive->borrow && fits(*receive, header)) {
    incoming.data = receive->into;
    return incoming;
  }
  if (!receive && closed_.contains(header.comm)) return incoming;
  try {
    if (!receive) store(incoming);
    incoming.data = incoming.owned_ = heap_slots_->take(header.length);
  } catch (const std::bad_alloc&) {
    abandon(incoming, out_of_memory());
    throw;
  }
  return incoming;
}

void Mailbox::store(Incoming& incoming) {
  incoming.stored_ = new_stored(incoming.peer, incoming.header);
  incoming.stored_->incoming = &incoming;
}

Mailbox::Incoming* Mailbox::announce(int peer, const Header& header, MessageSource& source,
                                     std::uint64_t message) {
  Incoming& incoming = take_incoming(peer, header);
  incoming.source_ = &source;
  incoming.message = message;
  if (Receive* receive = take_waiting(peer, header)) {
    give_to(*receive, incoming);
    return fetch(incoming) ? &incoming : nullptr;
  }
  if (closed_.contains(header.comm)) {
    free_incoming(incoming);
    return nullptr;
  }
  try {
    store(incoming);
  } catch (const std::bad_alloc&) {
    free_incoming(incoming);
    throw;
  }
  return &incoming;
}

// What the network may be told to write to must be there until it has: a caller's own need not be.
// False: there is no memory for it, and its receive has ended.
bool Mailbox::fetch(Incoming& incoming) {
  const Receive& receive = *incoming.receive_;
  if (receive.direct && fits(receive, incoming.header)) {
    incoming.data = receive.direct->bytes().data;
    incoming.memory = receive.direct->network_memory();
  } else {
    try {
      incoming.data = incoming.owned_ = heap_slots_->take(incoming.header.length);
    } catch (const std::bad_alloc&) {
      abandon(incoming, out_of_memory());
      return false;
    }
  }
  incoming.source_->fetch(incoming);
  return true;
}

void Mailbox::finish(Incoming& incoming) {
  free_incoming(incoming);
  if (Receive* receive = incoming.receive_) {
    --state(incoming.peer).waiting;
    --waiting_total_;
    if (incoming.owned_) {
      hand_over_owned(*receive, incoming.header, incoming.owned_);
    } else {
      receive->length = incoming.header.length;
      receive->landed = incoming.source_ != nullptr;
    }
    return scheduler_.complete(*receive);
  }
  if (incoming.stored_) {
    incoming.stored_->incoming = nullptr;
    return keep_owned(*incoming.stored_, incoming.owned_);
  }
  if (incoming.owned_) heap_slots_->give(incoming.owned_);
}

void Mailbox::abandon(Incoming& incoming, const Error& error) {
  free_incoming(incoming);
  if (incoming.stored_) discard(*incoming.stored_);
  if (incoming.owned_) heap_slots_->give(incoming.owned_);
  if (!incoming.receive_) return;
  --state(incoming.peer).waiting;
  --waiting_total_;
  fail(*incoming.receive_, error);
}

void Mailbox::fail(Receive& receive, Error error) {
  receive.error = std::move(error);
  scheduler_.complete(receive);
}

Mailbox::LeftOver Mailbox::find_left_over(std::uint32_t comm, std::uint32_t call) const {
  if (spare_stored_.size() == all_stored_.size()) [[likely]]
    return {};
  for (const Stored* stored : stored_) {
    for (; stored; stored = stored->next) {
      const Header& header = stored->header;
      const bool same_sequence = ((header.call ^ call) >> 31) == 0;
      if (header.comm != comm || !same_sequence || is_later(header.call, call) ||
          header.lane == pair_lane)
        continue;
      return {stored->peer, header.call};
    }
  }
  return {};
}

bool Mailbox::dispute_mismatched() {
  if (waiting_total_ == 0 || spare_stored_.size() == all_stored_.size()) return false;
  bool found = false;
  for (const Stored* head : stored_) {
    for (; head; head = head->next) {
      const Header header = head->header;
      const int peer = head->peer;
      if (state(peer).waiting == 0 || header.lane == pair_lane) continue;
      found |= dispute(peer, header);
    }
  }
  return found;
}

// Receives of the header's call that mean another one.
bool Mailbox::dispute(int peer, const Header& header) {
  const auto mismatched = [&](const Operation& operation) {
    const auto& receive = static_cast<const Receive&>(operation);
    return receive.peer == peer && receive.tag.comm == header.comm &&
           receive.tag.call == header.call && receive.tag.lane != pair_lane &&
           receive.digest != header.digest;
  };
  bool found = false;
  for (std::size_t b = 0; b < buckets; ++b) {
    if (on_dispute) {
      for (const Operation* waits = waiting_[b]; waits; waits = waits->next) {
        if (!mismatched(*waits)) continue;
        on_dispute(peer, header.call);
        return false;
      }
      continue;
    }
    while (Operation* receive = unlink(waiting_[b], waiting_tail_[b], mismatched)) {
      --state(peer).waiting;
      --waiting_total_;
      check(static_cast<Receive&>(*receive), header);
      scheduler_.complete(static_cast<Receive&>(*receive));
      found = true;
    }
  }
  return found;
}

void Mailbox::quiesce(const CommState& comm, const Error& error) {
  for (std::size_t b = 0; b < buckets; ++b) {
    auto of_comm = [&](Operation& operation) { return operation.comm == &comm; };
    while (Operation* found = unlink(waiting_[b], waiting_tail_[b], of_comm)) {
      --state(found->peer).waiting;
      --waiting_total_;
      fail(static_cast<Receive&>(*found), error);
    }
  }
  for (Incoming* incoming : active_incoming_) {
    if (!incoming->receive_ || incoming->receive_->comm != &comm) continue;
    // The rest of the message must not go to memory of the caller's.
    if (!incoming->owned_ && incoming->source_) {
      incoming->withheld_ = incoming->receive_->direct->withhold();
    } else if (!incoming->owned_) {
      incoming->data = nullptr;
    }
    --state(incoming->peer).waiting;
    --waiting_total_;
    fail(*std::exchange(incoming->receive_, nullptr), error);
  }
  // What nobody takes any more would hold back the peers' messages in other communicators, and is
  // what those who announced it still wait for.
  forget(comm.id);
}

void Mailbox::drop(Incoming& announced) {
  MessageSource& source = *announced.source_;
  free_incoming(announced);
  source.drop(announced.message);
}

void Mailbox::forget(std::uint32_t comm) {
  closed_.insert(comm);
  for (std::size_t b = 0; b < buckets; ++b) {
    auto of_comm = [&](Stored& stored) { return stored.header.comm == comm; };
    while (Stored* found = unlink(stored_[b], stored_tail_[b], of_comm)) {
      if (Incoming* incoming = found->incoming) {
        incoming->stored_ = nullptr;
        if (incoming->source_) drop(*incoming);
      } else if (found->owner) {
        found->owner->release_slot(found->peer, found->slot);
      }
      free_stored(found);
    }
  }
}

}  // namespace pith
