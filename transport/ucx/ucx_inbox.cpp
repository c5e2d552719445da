#include "transport/ucx/ucx_inbox.hpp"

#include "core/copy.hpp"

namespace pith {
namespace {

std::uint64_t name_of(UcxInbox::Held& held) { return reinterpret_cast<std::uint64_t>(&held); }
UcxInbox::Held& held_of(std::uint64_t name) { return *reinterpret_cast<UcxInbox::Held*>(name); }

}  // namespace

UcxInbox::Held& UcxInbox::hold(const UcxArrival& arrival) {
  if (spare_.empty()) {
    all_.push_back(std::make_unique<Held>());
    // A receive that meets an announced message must not fail for want of memory: see fetch().
    for (auto* list : {&spare_, &announced_, &wanted_}) list->reserve(all_.capacity());
    spare_.push_back(all_.back().get());
  }
  Held& held = *spare_.back();
  spare_.pop_back();
  held = Held();
  held.inbox = this;
  held.head = arrival.head;
  held.bytes = arrival.bytes;
  held.data = arrival.data;
  held.ready = !arrival.rendezvous || arrival.head.kind == UcxKind::direct;
  if (arrival.rendezvous || (arrival.may_keep && arrival.bytes >= keep_bytes)) {
    held.message = arrival.message;
  } else {
    held.slot = &slots_.take(arrival.bytes);
    copy_bytes(held.slot->data.get(), arrival.data, arrival.bytes);
    held.data = held.slot->data.get();
  }
  return held;
}

// Nearly always appends.
void UcxInbox::insert(Held& held) {
  Held** at = &held_;
  while (*at && static_cast<std::int32_t>((*at)->head.sequence - held.head.sequence) < 0) {
    at = &(*at)->next;
  }
  held.next = *at;
  *at = &held;
}

void UcxInbox::let_go(Held& held) {
  if (held.message) data_.release_data(std::exchange(held.message, nullptr));
  if (held.slot) slots_.give(*std::exchange(held.slot, nullptr));
  spare_.push_back(&held);
}

UcxInbox::Outcome UcxInbox::arrive(const UcxArrival& arrival) {
  if (arrival.head.sequence - next_ >= ahead_max || left_) return {"a message out of order"};
  const bool direct = arrival.head.kind == UcxKind::direct;
  if (direct && !arrival.rendezvous) return {"contents that were to be fetched"};
  const bool in_turn = arrival.head.sequence == next_ && !held_ && accepts();
  const bool short_enough = !arrival.may_keep || arrival.bytes < keep_bytes;
  if (in_turn && !arrival.rendezvous && (short_enough || incoming_)) {
    ++next_;
    if (arrival.head.kind == UcxKind::goodbye) {
      left_ = true;
      return {};
    }
    return {take_piece(arrival.head, arrival.data, arrival.bytes), false};
  }
  Held& held = hold(arrival);
  if (in_turn && held.ready) {
    // UCX frees the data after this callback, unless the mailbox keeps them: then let_go() does.
    void* message = std::exchange(held.message, nullptr);
    bool lent = false;
    const char* fault = take(held, lent);
    if (lent) {
      held.message = message;
    } else {
      let_go(held);
    }
    return {fault, lent};
  }
  const bool kept = held.message != nullptr;
  if (!held.ready) ++unfetched_;
  insert(held);
  return {nullptr, kept};
}

bool UcxInbox::pump(const char*& fault) {
  bool moved = false;
  while (!fault && can_pump()) {
    Held& held = *held_;
    held_ = held.next;
    bool lent = false;
    fault = take(held, lent);
    if (!lent) let_go(held);
    moved = true;
  }
  return moved;
}

// Takes a held piece whose turn has come. `lent`: the mailbox keeps its data for now.
const char* UcxInbox::take(Held& held, bool& lent) {
  ++next_;
  if (held.head.kind == UcxKind::goodbye) {
    left_ = true;
    return nullptr;
  }
  if (held.head.kind == UcxKind::direct) {
    if (incoming_) return "a message inside another";
    cost_ += ucx_cost(0);
    lent = announce(held);
    return nullptr;
  }
  const bool whole = held.head.offset == 0 && held.bytes == held.head.header.length;
  if (!whole || incoming_) return take_piece(held.head, held.data, held.bytes);
  cost_ += ucx_cost(held.bytes);
  lent = mailbox_.deliver(peer_, held.head.header, held.data, this, name_of(held)) ==
         Mailbox::Taken::kept;
  return nullptr;
}

const char* UcxInbox::take_piece(const UcxHead& head, const std::byte* data, std::size_t bytes) {
  cost_ += ucx_cost(bytes);
  const Header& header = head.header;
  if (head.offset == 0) {
    if (incoming_) return "a message inside another";
    if (bytes == header.length) {
      mailbox_.deliver(peer_, header, data, nullptr, 0);
      return nullptr;
    }
    incoming_ = &mailbox_.begin(peer_, header);
  }
  if (!incoming_ || incoming_->arrived != head.offset ||
      incoming_->header.length != header.length) {
    return "a piece of another message";
  }
  if (incoming_->data) copy_bytes(incoming_->data + head.offset, data, bytes);
  incoming_->arrived += bytes;
  if (incoming_->arrived == header.length) {
    mailbox_.finish(*std::exchange(incoming_, nullptr));
  }
  return nullptr;
}

UcxInbox::Held* UcxInbox::next_fetch(void*& message) {
  if (unfetched_ == 0) return nullptr;
  for (Held* held = held_; held; held = held->next) {
    // Without a message its fetch has failed, and the peer is about to be given up.
    if (held->ready || held->fetching || !held->message) continue;
    --unfetched_;
    held->fetching = true;
    held->slot = &slots_.take(held->bytes);
    held->data = held->slot->data.get();
    message = std::exchange(held->message, nullptr);
    return held;
  }
  return nullptr;
}

void UcxInbox::fetched(Held& held, bool good) {
  held.fetching = false;
  held.ready = good;
  if (held.dropped) held.inbox->let_go(held);
}

// False: no receive will ever want it.
bool UcxInbox::announce(Held& held) {
  announced_.push_back(&held);
  held.announced = mailbox_.announce(peer_, held.head.header, *this, name_of(held));
  if (!held.announced) announced_.pop_back();
  return held.announced != nullptr;
}

void UcxInbox::fetch(Mailbox::Incoming& incoming) { wanted_.push_back(&held_of(incoming.message)); }

void UcxInbox::drop(std::uint64_t name) {
  Held& held = held_of(name);
  std::erase(announced_, &held);
  let_go(held);
}

UcxInbox::Held* UcxInbox::next_wanted(void*& message) {
  if (wanted_.empty()) return nullptr;
  Held* held = wanted_.front();
  wanted_.erase(wanted_.begin());
  held->fetching = true;
  message = std::exchange(held->message, nullptr);
  return held;
}

void UcxInbox::landed(Held& held, bool good) {
  UcxInbox& inbox = *held.inbox;
  held.fetching = false;
  // A fetch fails with its endpoint; abandon() ends it once the cause is known.
  if (!good && !held.dropped) return;
  std::erase(inbox.announced_, &held);
  if (good) {
    inbox.mailbox_.finish(*held.announced);
  } else {
    inbox.mailbox_.abandon(*held.announced, inbox.why_);
  }
  inbox.let_go(held);
}

void UcxInbox::abandon(const Error& error) {
  why_ = error;
  wanted_.clear();
  for (Held* held : std::exchange(announced_, {})) {
    held->dropped = true;
    if (held->fetching) {
      announced_.push_back(held);  // UCX still writes to the receive's memory
      continue;
    }
    mailbox_.abandon(*held->announced, error);
    let_go(*held);
  }
  if (incoming_) mailbox_.abandon(*std::exchange(incoming_, nullptr), error);
  while (held_) {
    Held& held = *std::exchange(held_, held_->next);
    held.dropped = true;
    if (!held.fetching) let_go(held);  // else UCX still writes to its slot
  }
  unfetched_ = 0;
}

void UcxInbox::release_slot(int, std::uint64_t slot) { let_go(held_of(slot)); }

}  // namespace pith
