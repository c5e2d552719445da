// Buffers of one frame each, registered with the first rail: what is sent lies in them until it is
// acknowledged, what arrives until it is taken. Those for what is sent are pooled; those for what
// arrives are each pair's own, and go with their peer.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "transport/verbs/verbs_frames.hpp"

namespace pith {

struct VerbsSlot {
  std::byte* data = nullptr;  // room for verbs_frame_max
  std::uint32_t key = 0;
  std::uint32_t bytes = 0;  // of a received frame

  VerbsHead head() const {
    VerbsHead head;
    std::memcpy(&head, data, sizeof head);
    return head;
  }
  const std::byte* payload() const { return data + sizeof(VerbsHead); }
  std::size_t payload_bytes() const { return bytes - sizeof(VerbsHead); }
};

// Slots that are registered together, until the end of the block.
class VerbsBlock {
 public:
  // Fails where there is no memory for it, or it cannot be registered.
  static Expected<std::unique_ptr<VerbsBlock>> make(const VerbsRail& rail, std::size_t slots);
  ~VerbsBlock();
  VerbsBlock(const VerbsBlock&) = delete;
  VerbsBlock& operator=(const VerbsBlock&) = delete;

  std::size_t size() const { return slots_.size(); }
  VerbsSlot& operator[](std::size_t slot) { return slots_[slot]; }

 private:
  struct Aligned {
    void operator()(std::byte* data) const { ::operator delete[](data, std::align_val_t(4096)); }
  };
  explicit VerbsBlock(const VerbsRail& rail) : rail_(rail) {}

  const VerbsRail& rail_;
  std::unique_ptr<std::byte[], Aligned> data_;
  ibv_mr* region_ = nullptr;
  std::vector<VerbsSlot> slots_;
};

// The pool.
class VerbsSlots {
 public:
  explicit VerbsSlots(const VerbsRail& rail) : rail_(rail) {}
  VerbsSlots(const VerbsSlots&) = delete;
  VerbsSlots& operator=(const VerbsSlots&) = delete;

  const VerbsRail& rail() const { return rail_; }
  // Null: there is no memory, or it cannot be registered.
  VerbsSlot* take() noexcept;
  void give(VerbsSlot& slot) { spare_.push_back(&slot); }
  // Makes slots so that `count` are spare.
  Error reserve(std::size_t count);

 private:
  static constexpr std::size_t slots_of_block = 32;
  Error add_block();

  const VerbsRail& rail_;
  std::vector<std::unique_ptr<VerbsBlock>> blocks_;
  std::vector<VerbsSlot*> spare_;
};

}  // namespace pith
