#include "transport/ucx/ucx_outbox.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "core/compute.hpp"
#include "core/copy.hpp"

namespace pith {

void UcxOutbox::open(ucp_ep_h endpoint, std::uint64_t token) {
  endpoint_ = endpoint;
  token_ = token;
}

UcxOutgoing& UcxOutbox::take_outgoing(Send& send) {
  if (spare_.empty()) {
    all_.push_back(std::make_unique<UcxOutgoing>());
    for (auto* list : {&spare_, &queue_, &posted_}) list->reserve(all_.capacity());
    spare_.push_back(all_.back().get());
  }
  UcxOutgoing& outgoing = *spare_.back();
  spare_.pop_back();
  outgoing.send = &send;
  outgoing.header = send.header;
  outgoing.data = send.data;
  outgoing.posted = 0;
  outgoing.begun = false;
  outgoing.pending = 0;
  outgoing.direct = send.direct != nullptr;
  return outgoing;
}

UcxHead UcxOutbox::head_of(UcxKind kind) {
  UcxHead head;
  head.kind = kind;
  head.from = wire_.from;
  head.token = token_;
  head.taken = told_ = taken_;
  if (is_sequenced(kind)) head.sequence = sequence_++;
  return head;
}

// What counts against the window: fetched messages take no room at the peer.
std::size_t UcxOutbox::next_bytes(const UcxOutgoing& outgoing) const {
  if (outgoing.direct) return 0;
  return std::min<std::size_t>(outgoing.header.length - outgoing.posted, ucx_piece_max);
}

bool UcxOutbox::has_room(const UcxOutgoing& outgoing) const {
  return spent_ - credited_ + ucx_cost(next_bytes(outgoing)) <= wire_.window_bytes;
}

bool UcxOutbox::start(Send& send) {
  UcxOutgoing& outgoing = take_outgoing(send);
  queue_.push_back(&outgoing);
  starting_ = &outgoing;
  started_done_ = false;
  try {
    pump();
  } catch (const std::bad_alloc&) {  // progress() tries again, and reports it
  }
  starting_ = nullptr;
  return started_done_;
}

bool UcxOutbox::pump() {
  bool moved = false;
  while (!queue_.empty() && has_room(*queue_.front())) {
    UcxOutgoing& outgoing = *queue_.front();
    post_next(outgoing);
    moved = true;
    if (!outgoing.all_posted()) continue;
    queue_.erase(queue_.begin());
    posted_.push_back(&outgoing);
    if (outgoing.pending == 0) finish(outgoing);
  }
  return moved;
}

void UcxOutbox::post_next(UcxOutgoing& outgoing) {
  const std::size_t bytes = next_bytes(outgoing);
  UcxSlot& slot = wire_.slots->take(bytes);
  spent_ += ucx_cost(bytes);
  outgoing.begun = true;
  ++outgoing.pending;
  slot.outgoing = &outgoing;
  if (outgoing.direct) return post_direct(outgoing, slot);
  post_piece(outgoing, slot, bytes);
}

void UcxOutbox::post_direct(UcxOutgoing& outgoing, UcxSlot& slot) {
  slot.head = head_of(UcxKind::direct);
  slot.head.header = outgoing.header;
  outgoing.posted = outgoing.header.length;
  slot.outbox = this;
  const ucs_status_ptr_t request = wire_.worker->send_direct(
      endpoint_, std::as_bytes(std::span(&slot.head, 1)), {outgoing.data, outgoing.header.length},
      outgoing.send->direct->network_memory(), &UcxOutbox::slot_sent, &slot);
  if (is_done(slot, request)) --outgoing.pending;
}

void UcxOutbox::post_piece(UcxOutgoing& outgoing, UcxSlot& slot, std::size_t bytes) {
  slot.head = head_of(UcxKind::piece);
  slot.head.header = outgoing.header;
  slot.head.offset = static_cast<std::uint32_t>(outgoing.posted);
  copy_bytes(slot.data.get(), outgoing.data + outgoing.posted, bytes);
  outgoing.posted += bytes;
  const bool large = bytes >= wire_.rendezvous_bytes;
  const UcxWorker::Way way = large ? UcxWorker::Way::rendezvous : UcxWorker::Way::eager;
  if (post(slot, way)) --outgoing.pending;
}

// True when UCX has no more use for the slot.
bool UcxOutbox::post(UcxSlot& slot, UcxWorker::Way way) {
  slot.outbox = this;
  const std::span<const std::byte> head = std::as_bytes(std::span(&slot.head, 1));
  const std::span<const std::byte> data(slot.data.get(), slot.bytes);
  return is_done(slot,
                 wire_.worker->send(endpoint_, head, data, way, &UcxOutbox::slot_sent, &slot));
}

// An error counts as done: the endpoint is broken, and its error handler reports that.
bool UcxOutbox::is_done(UcxSlot& slot, ucs_status_ptr_t request) {
  if (UCS_PTR_IS_PTR(request)) return false;
  wire_.slots->give(slot);
  return true;
}

void UcxOutbox::slot_sent(void* request, ucs_status_t, void* arg) {
  auto& slot = *static_cast<UcxSlot*>(arg);
  UcxOutbox& outbox = *slot.outbox;
  UcxOutgoing* outgoing = slot.outgoing;
  outbox.wire_.worker->ucx().request_free(request);
  outbox.wire_.slots->give(slot);
  if (outgoing) {
    outbox.piece_done(*outgoing);
  } else {
    --outbox.saying_;
  }
}

void UcxOutbox::piece_done(UcxOutgoing& outgoing) {
  if (--outgoing.pending == 0 && outgoing.all_posted()) finish(outgoing);
}

void UcxOutbox::finish(UcxOutgoing& outgoing) {
  std::erase(posted_, &outgoing);
  outgoing.copy.reset();
  outgoing.withheld.reset();
  spare_.push_back(&outgoing);
  Send* send = std::exchange(outgoing.send, nullptr);
  if (!send) return;
  if (&outgoing == starting_) {
    started_done_ = true;
  } else {
    wire_.scheduler->complete(*send);
  }
}

void UcxOutbox::credited(std::uint64_t taken) {
  if (taken > credited_ && taken <= spent_) credited_ = taken;
}

void UcxOutbox::took(std::uint64_t cost) {
  taken_ += cost;
  // Early enough that the sender does not stall, seldom enough to cost nothing.
  if (endpoint_ && taken_ - told_ >= wire_.window_bytes / 4) say(UcxKind::credit);
}

void UcxOutbox::say(UcxKind kind) {
  if (!endpoint_) return;
  UcxSlot& slot = wire_.slots->take(0);
  slot.head = head_of(kind);
  slot.outgoing = nullptr;
  ++saying_;
  if (post(slot, UcxWorker::Way::eager)) --saying_;
}

bool UcxOutbox::awaited() const {
  const auto is_awaited = [](const UcxOutgoing* outgoing) { return outgoing->send != nullptr; };
  return std::any_of(queue_.begin(), queue_.end(), is_awaited) ||
         std::any_of(posted_.begin(), posted_.end(), is_awaited);
}

void UcxOutbox::end(UcxOutgoing& outgoing, const Error& error) {
  if (!outgoing.send) return;
  if (outgoing.direct && outgoing.begun) outgoing.withheld = outgoing.send->direct->withhold();
  outgoing.send->error = error;
  wire_.scheduler->complete(*std::exchange(outgoing.send, nullptr));
}

void UcxOutbox::quiesce(const CommState& comm, const Error& error) {
  const auto meant = [&](const UcxOutgoing& outgoing) {
    return outgoing.send && outgoing.send->comm == &comm;
  };
  for (UcxOutgoing* outgoing : posted_) {
    if (meant(*outgoing)) end(*outgoing, error);
  }
  bool copied = true;
  std::erase_if(queue_, [&](UcxOutgoing* outgoing) {
    if (!meant(*outgoing)) return false;
    if (outgoing->begun) {
      const std::size_t rest = outgoing->header.length - outgoing->posted;
      outgoing->copy.reset(new (std::nothrow) std::byte[outgoing->header.length]);
      copied &= outgoing->copy != nullptr;
      if (outgoing->copy) {
        std::memcpy(outgoing->copy.get() + outgoing->posted, outgoing->data + outgoing->posted,
                    rest);
      }
      outgoing->data = outgoing->copy.get();
      end(*outgoing, error);
      return false;
    }
    end(*outgoing, error);
    spare_.push_back(outgoing);
    return true;
  });
  if (!copied) fail(error);
}

void UcxOutbox::for_each_sending(const std::function<void(const Send&)>& see) const {
  for (const auto* list : {&posted_, &queue_}) {
    for (const UcxOutgoing* outgoing : *list) {
      if (outgoing->send) see(*outgoing->send);
    }
  }
}

void UcxOutbox::peer_left() {
  for (UcxOutgoing* outgoing : posted_) {
    end(*outgoing, Error());
  }
}

void UcxOutbox::fail(const Error& error) {
  endpoint_ = nullptr;
  for (UcxOutgoing* outgoing : posted_) end(*outgoing, error);
  for (UcxOutgoing* outgoing : queue_) {
    end(*outgoing, error);
    outgoing->copy.reset();
    // What UCX still has of it ends with the endpoint.
    outgoing->begun = true;
    outgoing->posted = outgoing->header.length;
    (outgoing->pending == 0 ? spare_ : posted_).push_back(outgoing);
  }
  queue_.clear();
}

}  // namespace pith
