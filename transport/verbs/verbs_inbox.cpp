#include "transport/verbs/verbs_inbox.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "core/copy.hpp"

namespace pith {

namespace {

// Tells the peer that a message of its is not wanted.
void refuse(VerbsControl& control, std::uint32_t sender) {
  VerbsHead head;
  head.kind = VerbsKind::dropped;
  head.transfer = sender;
  control.say(head);
}

}  // namespace

const char* VerbsInbox::arrive(std::uint32_t slot) {
  if (left_) return "a frame after its goodbye";
  held_.push_back(slot);
  const char* fault = nullptr;
  take_held(fault);
  return fault;
}

// Where there is no memory for a message, its frame stays the first.
bool VerbsInbox::take_held(const char*& fault) {
  bool moved = false;
  while (!fault && !held_.empty() && mailbox_.accepts(peer_)) {
    fault = take(held_.front());
    held_.erase(held_.begin());
    moved = true;
  }
  return moved;
}

void VerbsInbox::take_rest() {
  try {
    while (!held_.empty() && !take(held_.front())) held_.erase(held_.begin());
  } catch (const std::bad_alloc&) {  // what is left is lost with the peer
  }
}

const char* VerbsInbox::take(std::uint32_t slot) {
  const VerbsSlot& came = control_.slot(slot);
  const VerbsHead head = came.head();
  if (head.kind == VerbsKind::message) {
    if (incoming_) return "a message inside another";
    SlotOwner* owner = control_.credits().can_lend() ? this : nullptr;
    if (mailbox_.deliver(peer_, head.header, came.payload(), owner, slot) == Mailbox::Taken::kept) {
      control_.credits().lend();
      return nullptr;
    }
  }
  const char* fault = nullptr;
  if (head.kind == VerbsKind::piece) fault = take_piece(came, head);
  if (head.kind == VerbsKind::announce) announce(head);
  if (head.kind == VerbsKind::goodbye) left_ = true;
  control_.take_back(slot);
  return fault;
}

void VerbsInbox::release_slot(int, std::uint64_t slot) {
  control_.credits().unlend();
  control_.take_back(static_cast<std::uint32_t>(slot));
}

const char* VerbsInbox::take_piece(const VerbsSlot& slot, const VerbsHead& head) {
  if (head.offset == 0) {
    if (incoming_) return "a message inside another";
    incoming_ = &mailbox_.begin(peer_, head.header);
  }
  if (!incoming_ || incoming_->arrived != head.offset ||
      incoming_->header.length != head.header.length) {
    return "a piece of another message";
  }
  if (incoming_->data) {
    copy_bytes(incoming_->data + head.offset, slot.payload(), slot.payload_bytes());
  }
  incoming_->arrived += slot.payload_bytes();
  if (incoming_->arrived == incoming_->header.length) {
    mailbox_.finish(*std::exchange(incoming_, nullptr));
  }
  return nullptr;
}

VerbsInbox::Arrival& VerbsInbox::take_arrival() {
  if (spare_.empty()) {
    all_.push_back(std::make_unique<Arrival>());
    all_.back()->name = VerbsName::first(all_.size() - 1).value();
    // A receive that meets an announced message must not fail for want of memory: see fetch().
    for (auto* list : {&spare_, &active_, &wanted_, &stopped_}) list->reserve(all_.capacity());
    spare_.push_back(all_.back().get());
  }
  Arrival& arrival = *spare_.back();
  spare_.pop_back();
  const std::uint32_t name = VerbsName(arrival.name).next().value();
  arrival = Arrival();
  arrival.name = name;
  active_.push_back(&arrival);
  return arrival;
}

VerbsInbox::Arrival* VerbsInbox::named(std::uint32_t name, State state) {
  const std::size_t place = VerbsName(name).place();
  if (place >= all_.size()) return nullptr;
  Arrival* arrival = all_[place].get();
  return arrival->name == name && arrival->state == state ? arrival : nullptr;
}

// Of a call that was aborted no key that the peer has got may be of use to it, even if all arrived.
// But scratch is the library's own, and others' messages share its registration: for these it is
// enough that the data connections stop.
void VerbsInbox::give_back(Arrival& arrival) {
  const bool stopped = !arrival.direct && std::ranges::find(stopped_, &arrival) != stopped_.end();
  VerbsRegion* region = std::exchange(arrival.region, nullptr);
  if (region && stopped) memory_.revoke(*region);
  if (region && !stopped) memory_.release(*region);
}

void VerbsInbox::recycle(Arrival& arrival) {
  if (arrival.state == State::granted) --granted_;
  arrival.state = State::announced;  // in which named() finds none
  give_back(arrival);
  std::erase(active_, &arrival);
  std::erase(wanted_, &arrival);
  std::erase(stopped_, &arrival);
  spare_.push_back(&arrival);
}

void VerbsInbox::announce(const VerbsHead& head) {
  Arrival& arrival = take_arrival();
  arrival.sender = head.answer;
  try {
    arrival.incoming = mailbox_.announce(peer_, head.header, *this, arrival.name);
  } catch (const std::bad_alloc&) {
    recycle(arrival);
    throw;
  }
  if (arrival.incoming) return;
  refuse(control_, arrival.sender);
  recycle(arrival);
}

void VerbsInbox::fetch(Mailbox::Incoming& incoming) {
  Arrival& arrival = *all_[VerbsName(static_cast<std::uint32_t>(incoming.message)).place()];
  arrival.incoming = &incoming;
  arrival.state = State::wanted;
  arrival.direct = incoming.direct != nullptr;
  if (arrival.direct) arrival.region = memory_.acquire(*incoming.direct);
  wanted_.push_back(&arrival);
}

void VerbsInbox::drop(std::uint64_t message) {
  Arrival& arrival = *all_[VerbsName(static_cast<std::uint32_t>(message)).place()];
  refuse(control_, arrival.sender);
  recycle(arrival);
}

bool VerbsInbox::pump(const char*& fault) {
  forget_stopped();
  bool moved = take_held(fault);
  while (can_grant()) {
    Arrival& arrival = *wanted_.front();
    wanted_.erase(wanted_.begin());
    grant(arrival);
    moved = true;
  }
  return moved;
}

void VerbsInbox::grant(Arrival& arrival) {
  const std::size_t bytes = arrival.incoming->header.length;
  if (arrival.direct && !arrival.region) {
    Mailbox::Incoming& incoming = *arrival.incoming;
    refuse(control_, arrival.sender);
    recycle(arrival);
    return mailbox_.abandon(incoming, not_registered());
  }
  VerbsHead head;
  head.kind = VerbsKind::grant;
  head.transfer = arrival.sender;
  head.answer = arrival.name;
  head.epoch = lanes_.epoch();
  VerbsKeys keys;
  if (!arrival.direct) arrival.region = memory_.acquire(arrival.incoming->data, bytes, true);
  if (arrival.region) {
    arrival.state = State::granted;
    arrival.lanes_left = lanes_.lanes_for(bytes);
    ++granted_;
    head.place = reinterpret_cast<std::uint64_t>(arrival.incoming->data);
    for (std::size_t r = 0; r < lanes_.count(); ++r) {
      keys.of_rail[r] = arrival.region->remote_key(r);
    }
  } else {
    arrival.state = State::portions;
  }
  control_.say(head, std::as_bytes(std::span(&keys, 1)));
}

void VerbsInbox::noticed(std::uint32_t name) {
  Arrival* arrival = named(name, State::granted);
  if (arrival && --arrival->lanes_left == 0) finish(*arrival);
}

const char* VerbsInbox::portion(const VerbsHead& head, std::span<const std::byte> payload) {
  Arrival* arrival = named(head.transfer, State::portions);
  if (!arrival) return nullptr;
  Mailbox::Incoming& incoming = *arrival->incoming;
  if (head.offset != incoming.arrived || payload.size() > incoming.header.length - head.offset) {
    return "a portion outside its message";
  }
  if (incoming.data) copy_bytes(incoming.data + head.offset, payload.data(), payload.size());
  incoming.arrived += payload.size();
  if (incoming.arrived == incoming.header.length) finish(*arrival);
  return nullptr;
}

void VerbsInbox::withdrawn(const VerbsHead& head, const Error& why) {
  for (const State state : {State::wanted, State::granted, State::portions}) {
    Arrival* arrival = named(head.transfer, state);
    if (!arrival) continue;
    Mailbox::Incoming& incoming = *arrival->incoming;
    recycle(*arrival);
    return mailbox_.abandon(incoming, why);
  }
}

void VerbsInbox::finish(Arrival& arrival) {
  Mailbox::Incoming& incoming = *arrival.incoming;
  recycle(arrival);
  mailbox_.finish(incoming);
}

void VerbsInbox::stop(std::uint64_t message) {
  Arrival& arrival = *all_[VerbsName(static_cast<std::uint32_t>(message)).place()];
  if (arrival.state == State::granted) on_stop();
  if (arrival.state != State::portions) stopped_.push_back(&arrival);
}

// Not within stop(), where the mailbox goes through its messages. Those that were granted end when
// the data connections have come to rest: see halt().
void VerbsInbox::forget_stopped() {
  const std::vector<Arrival*> stopped = stopped_;
  for (Arrival* arrival : stopped) {
    if (arrival->state != State::wanted) continue;
    refuse(control_, arrival->sender);
    finish(*arrival);
  }
}

std::size_t VerbsInbox::halt(std::span<std::uint32_t> wanted) {
  std::size_t count = 0;
  const std::vector<Arrival*> active = active_;
  for (Arrival* arrival : active) {
    if (arrival->state != State::granted) continue;
    --granted_;
    arrival->state = State::wanted;
    wanted[count++] = arrival->sender;
    // Those whose memory was taken back are refused next: see forget_stopped().
    const bool stopped = std::ranges::find(stopped_, arrival) != stopped_.end();
    if (stopped || !arrival->direct) give_back(*arrival);
    if (!stopped) wanted_.push_back(arrival);
  }
  return count;
}

void VerbsInbox::abandon(const Error& error) {
  held_.clear();
  const std::vector<Arrival*> active = active_;
  for (Arrival* arrival : active) {
    Mailbox::Incoming& incoming = *arrival->incoming;
    recycle(*arrival);
    mailbox_.abandon(incoming, error);
  }
  if (incoming_) mailbox_.abandon(*std::exchange(incoming_, nullptr), error);
}

}  // namespace pith
