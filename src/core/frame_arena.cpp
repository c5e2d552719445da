#include "core/frame_arena.hpp"

#include <cstdlib>
#include <new>

namespace pith {

FrameArena::~FrameArena() {
  for (void* head : free_) {
    while (head) {
      void* next = *static_cast<void**>(head);
      ::operator delete(static_cast<std::byte*>(head) - header_bytes);
      head = next;
    }
  }
}

void* FrameArena::allocate_new(std::size_t bytes, std::size_t size_class) {
  const bool pooled = size_class < classes;
  const std::size_t room = pooled ? size_class * granule : bytes;
  auto* raw = static_cast<std::byte*>(::operator new(room + header_bytes));
  new (raw) Block{this, static_cast<std::uint32_t>(pooled ? size_class : classes)};
  ++live_;
  return raw + header_bytes;
}

void FrameArena::free(void* frame) noexcept {
  auto* raw = static_cast<std::byte*>(frame) - header_bytes;
  const Block block = *reinterpret_cast<Block*>(raw);
  --block.arena->live_;
  if (block.size_class == classes) return ::operator delete(raw);
  *static_cast<void**>(frame) = block.arena->free_[block.size_class];
  block.arena->free_[block.size_class] = frame;
}

}  // namespace pith
