// Pooled buffers of one frame each, registered with the first rail: what is sent lies in them until
// it is acknowledged, what arrives until it is taken.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <vector>

#include "transport/verbs/verbs_frames.hpp"

namespace pith {

struct VerbsSlot {
  std::byte* data = nullptr;  // room for verbs_frame_max
  std::uint32_t key = 0;
  std::uint32_t bytes = 0;  // of a received frame

  VerbsHead head() const;
  const std::byte* payload() const { return data + sizeof(VerbsHead); }
  std::size_t payload_bytes() const { return bytes - sizeof(VerbsHead); }
};

class VerbsSlots {
 public:
  explicit VerbsSlots(const VerbsRail& rail) : rail_(rail) {}
  ~VerbsSlots();
  VerbsSlots(const VerbsSlots&) = delete;
  VerbsSlots& operator=(const VerbsSlots&) = delete;

  // Null: there is no memory, or it cannot be registered.
  VerbsSlot* take() noexcept;
  void give(VerbsSlot& slot) { spare_.push_back(&slot); }
  // Makes slots so that `count` are spare.
  Error reserve(std::size_t count);

 private:
  static constexpr std::size_t slots_of_block = 32;
  struct Aligned {
    void operator()(std::byte* data) const { ::operator delete[](data, std::align_val_t(4096)); }
  };
  struct Block {
    std::unique_ptr<std::byte[], Aligned> data;
    ibv_mr* region = nullptr;
    std::vector<VerbsSlot> slots;
  };
  Error add_block();

  const VerbsRail& rail_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<VerbsSlot*> spare_;
};

}  // namespace pith
