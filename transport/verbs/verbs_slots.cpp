#include "transport/verbs/verbs_slots.hpp"

#include <cerrno>

#include "transport/locked_memory.hpp"

namespace pith {

Expected<std::unique_ptr<VerbsBlock>> VerbsBlock::make(const VerbsRail& rail, std::size_t slots) {
  const std::size_t bytes = slots * verbs_frame_max;
  std::unique_ptr<VerbsBlock> block;
  try {
    block.reset(new VerbsBlock(rail));
    block->data_.reset(static_cast<std::byte*>(::operator new[](bytes, std::align_val_t(4096))));
    block->slots_.resize(slots);
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
  std::byte* at = block->data_.get();
  block->region_ = rail.verbs().reg_mr(rail.domain(), at, bytes, IBV_ACCESS_LOCAL_WRITE);
  if (!block->region_) return not_locked("register buffers with " + rail.name(), errno);
  for (VerbsSlot& slot : block->slots_) {
    slot.data = at;
    slot.key = block->region_->lkey;
    at += verbs_frame_max;
  }
  return block;
}

VerbsBlock::~VerbsBlock() {
  if (region_) rail_.verbs().dereg_mr(region_);
}

Error VerbsSlots::add_block() {
  blocks_.reserve(blocks_.size() + 1);
  spare_.reserve((blocks_.size() + 1) * slots_of_block);
  Expected<std::unique_ptr<VerbsBlock>> block = VerbsBlock::make(rail_, slots_of_block);
  if (!block) return block.error();
  for (std::size_t s = 0; s < slots_of_block; ++s) spare_.push_back(&(**block)[s]);
  blocks_.push_back(std::move(*block));
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
