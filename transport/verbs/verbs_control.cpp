#include "transport/verbs/verbs_control.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "core/copy.hpp"

namespace pith {
namespace {

// Frames of up to this size go without a slot, if the device can.
constexpr std::uint32_t inlined_wanted = 220;
// Of inlined frames, which need no completion of their own.
constexpr std::uint32_t signal_every = 8;
// Made for each pair at its start; all pairs share them.
constexpr std::size_t slots_to_send = 8;
constexpr std::size_t words_usual = 64;

VerbsSlot*& of_number(std::span<VerbsSlot*> flight, std::uint32_t number) {
  return flight[number & (flight.size() - 1)];
}

template <class Word>
bool make_room(std::vector<Word>& words) noexcept {
  try {
    words.reserve(2 * words.size() + 1);
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

}  // namespace

std::size_t VerbsControl::completions(std::uint32_t window) {
  return 3 * std::size_t{window + VerbsCredits::besides};
}

Error VerbsControl::make(const VerbsRail& rail, std::uint32_t window) {
  credits_.ours = window;
  const std::uint32_t depth = window + VerbsCredits::besides;
  VerbsDepth wanted{2 * depth, depth, inlined_wanted};
  Expected<VerbsQueuePair> pair = VerbsQueuePair::make(rail, wanted);
  if (!pair) return pair.error();
  pair_ = std::move(*pair);
  inlined_ = wanted.inlined;
  flight_.resize(std::bit_floor(2 * depth));
  return {};
}

Error VerbsControl::meet(const VerbsPlace& place, const VerbsEnd& theirs,
                         std::uint32_t their_window) {
  credits_.theirs = their_window;
  return pair_.meet(place, theirs);
}

Error VerbsControl::open() {
  const std::size_t depth = credits_.ours + VerbsCredits::besides;
  Expected<std::unique_ptr<VerbsBlock>> block = VerbsBlock::make(slots_.rail(), depth);
  if (!block) return block.error();
  received_ = std::move(*block);
  if (Error error = slots_.reserve(slots_to_send)) return error;
  words_.reserve(words_usual);
  for (std::uint32_t slot = 0; slot < depth; ++slot) post_receive(slot);
  if (broken_ != 0) return system_error("post receives", broken_);
  if (Error error = pair_.open()) return error;
  open_ = true;
  return {};
}

void VerbsControl::close() {
  open_ = false;
  pair_.destroy();
  words_.clear();
  for (; completed_ != posted_; ++completed_) {
    VerbsSlot*& slot = of_number(flight_, completed_);
    if (slot) slots_.give(*std::exchange(slot, nullptr));
  }
}

void VerbsControl::post_receive(std::uint32_t slot) {
  ibv_sge part{};
  part.addr = reinterpret_cast<std::uint64_t>((*received_)[slot].data);
  part.length = verbs_frame_max;
  part.lkey = (*received_)[slot].key;
  ibv_recv_wr work{};
  work.wr_id = VerbsTag{VerbsWork::frame_came, static_cast<std::uint32_t>(peer_), slot}.pack();
  work.sg_list = &part;
  work.num_sge = 1;
  if (const int error = pair_.post(work); error != 0) broken_ = error;
}

void VerbsControl::post(ibv_send_wr& work, VerbsSlot* slot) {
  of_number(flight_, posted_) = slot;
  work.wr_id = VerbsTag{VerbsWork::frame_sent, static_cast<std::uint32_t>(peer_), posted_}.pack();
  ++posted_;
  unsignalled_ = slot || unsignalled_ + 1 == signal_every ? 0 : unsignalled_ + 1;
  if (unsignalled_ == 0) work.send_flags |= IBV_SEND_SIGNALED;
  if (const int error = pair_.post(work); error != 0) broken_ = error;
}

// Where there is no slot, nothing has changed but that the pair is broken.
void VerbsControl::post_frame(VerbsHead head, std::span<const std::byte> payload) {
  const auto bytes = static_cast<std::uint32_t>(sizeof head + payload.size());
  VerbsSlot* slot = bytes <= inlined_ ? nullptr : slots_.take();
  if (!slot && bytes > inlined_) {
    broken_ = ENOMEM;
    return;
  }
  if (head.kind == VerbsKind::goodbye || head.kind == VerbsKind::farewell) {
    unsignalled_ = signal_every - 1;
    last_ = posted_ + 1;
  }
  head.taken = credits_.tell();
  if (is_counted(head.kind)) credits_.spend();
  ibv_sge parts[2] = {};
  ibv_send_wr work{};
  work.opcode = IBV_WR_SEND;
  work.sg_list = parts;
  work.num_sge = 1;
  if (slot) {
    std::memcpy(slot->data, &head, sizeof head);
    if (!payload.empty()) copy_bytes(slot->data + sizeof head, payload.data(), payload.size());
    parts[0] = {reinterpret_cast<std::uint64_t>(slot->data), bytes, slot->key};
    return post(work, slot);
  }
  parts[0] = {reinterpret_cast<std::uint64_t>(&head), sizeof head, 0};
  parts[1] = {reinterpret_cast<std::uint64_t>(payload.data()),
              static_cast<std::uint32_t>(payload.size()), 0};
  work.num_sge = payload.empty() ? 1 : 2;
  work.send_flags = IBV_SEND_INLINE;
  post(work, nullptr);
}

void VerbsControl::send(const VerbsHead& head, std::span<const std::byte> payload) {
  post_frame(head, payload);
}

void VerbsControl::say(const VerbsHead& head, std::span<const std::byte> payload) {
  if (words_.empty() && open_ && credits_.room_for_word() && has_queue_room())
    return post_frame(head, payload);
  if (words_.size() == words_.capacity() && !make_room(words_)) {
    broken_ = ENOMEM;
    return;
  }
  Word& word = words_.emplace_back();
  word.head = head;
  word.bytes = payload.size();
  if (!payload.empty()) std::memcpy(word.payload, payload.data(), payload.size());
}

void VerbsControl::forget_grants() {
  std::erase_if(words_, [](const Word& word) {
    return word.head.kind == VerbsKind::grant && word.head.place != 0;
  });
}

bool VerbsControl::can_pump() const {
  const bool says = !words_.empty() && credits_.room_for_word();
  return open_ && has_queue_room() && (says || credits_.owes());
}

bool VerbsControl::pump() {
  bool moved = false;
  while (open_ && !words_.empty() && credits_.room_for_word() && has_queue_room()) {
    const Word word = words_.front();
    words_.erase(words_.begin());
    post_frame(word.head, {word.payload, word.bytes});
    moved = true;
  }
  settle_credit();
  return moved;
}

void VerbsControl::sent(std::uint32_t number) {
  while (completed_ != number + 1) {
    VerbsSlot*& slot = of_number(flight_, completed_);
    if (slot) slots_.give(*std::exchange(slot, nullptr));
    ++completed_;
  }
}

void VerbsControl::take_back(std::uint32_t slot) {
  if (!open_) return;
  if (is_counted((*received_)[slot].head().kind)) credits_.take();
  post_receive(slot);
  settle_credit();
}

void VerbsControl::settle_credit() {
  if (!credits_.owes() || !open_ || !has_queue_room()) return;
  VerbsHead head;
  head.kind = VerbsKind::credit;
  post_frame(head, {});
}

void VerbsControl::probe() {
  const bool pending = probe_ != 0 && static_cast<std::int32_t>(probe_ - completed_) > 0;
  if (!open_ || pending || !has_queue_room()) return;
  ibv_send_wr work{};
  work.opcode = IBV_WR_RDMA_WRITE;
  unsignalled_ = signal_every - 1;
  post(work, nullptr);
  probe_ = posted_;
}

}  // namespace pith
