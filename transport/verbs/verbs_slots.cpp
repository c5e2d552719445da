#include "transport/verbs/verbs_slots.hpp"

#include <cerrno>
#include <cstring>

namespace pith {

VerbsHead VerbsSlot::head() const {
  VerbsHead head;
  std::memcpy(&head, data, sizeof head);
  return head;
}

VerbsSlots::~VerbsSlots() {
  for (const auto& block : blocks_) rail_.verbs().dereg_mr(block->region);
}

Error VerbsSlots::add_block() {
  constexpr std::size_t bytes = slots_of_block * verbs_frame_max;
  auto block = std::make_unique<Block>();
  block->data.reset(static_cast<std::byte*>(::operator new[](bytes, std::align_val_t(4096))));
  block->slots.resize(slots_of_block);
  blocks_.reserve(blocks_.size() + 1);
  spare_.reserve((blocks_.size() + 1) * slots_of_block);
  block->region =
      rail_.verbs().reg_mr(rail_.domain(), block->data.get(), bytes, IBV_ACCESS_LOCAL_WRITE);
  if (!block->region) return system_error("register buffers with " + rail_.name(), errno);
  std::byte* at = block->data.get();
  for (VerbsSlot& slot : block->slots) {
    slot.data = at;
    slot.key = block->region->lkey;
    at += verbs_frame_max;
    spare_.push_back(&slot);
  }
  blocks_.push_back(std::move(block));
  return {};
}

VerbsSlot* VerbsSlots::take() noexcept {
  if (spare_.empty() && reserve(1)) return nullptr;
  VerbsSlot* slot = spare_.back();
  spare_.pop_back();
  return slot;
}

Error VerbsSlots::reserve(std::size_t count) {
  try {
    while (spare_.size() < count) {
      if (Error error = add_block()) return error;
    }
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
  return {};
}

}  // namespace pith
