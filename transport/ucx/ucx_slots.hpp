// Pooled buffers for what UCX sends and what it leaves with us: a header and a piece of payload.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "transport/ucx/ucx_frames.hpp"

namespace pith {

class UcxOutbox;
struct UcxOutgoing;

struct UcxSlot {
  UcxHead head;  // must stay until UCX is done: it sends the header late
  std::size_t room = 0;
  std::size_t bytes = 0;
  UcxOutbox* outbox = nullptr;      // while UCX sends it
  UcxOutgoing* outgoing = nullptr;  // the message it is a piece of; null: the transport's own
  std::unique_ptr<std::byte[]> data;
};

class UcxSlots {
 public:
  UcxSlot& take(std::size_t bytes) {
    auto& spare = spare_[bytes > small_bytes];
    if (spare.empty()) add(bytes > small_bytes ? ucx_piece_max : small_bytes);
    UcxSlot& slot = *spare.back();
    spare.pop_back();
    slot.bytes = bytes;
    ++out_;
    return slot;
  }
  void give(UcxSlot& slot) {
    --out_;
    spare_[slot.room > small_bytes].push_back(&slot);
  }
  std::size_t out() const { return out_; }

 private:
  static constexpr std::size_t small_bytes = 2048;

  // Several at once, so that small variations in a steady state allocate nothing.
  void add(std::size_t room) {
    auto& spare = spare_[room > small_bytes];
    for (int i = 0; i < 8; ++i) {
      auto slot = std::make_unique<UcxSlot>();
      slot->room = room;
      slot->data = std::make_unique_for_overwrite<std::byte[]>(room);
      all_.push_back(std::move(slot));
      spare.reserve(all_.capacity());
      spare.push_back(all_.back().get());
    }
  }

  std::vector<std::unique_ptr<UcxSlot>> all_;
  std::array<std::vector<UcxSlot*>, 2> spare_;
  std::size_t out_ = 0;
};

}  // namespace pith
