// Memory for coroutine frames: free lists by size class, so that the steady state allocates
// nothing. One arena per engine, used only by the thread that drives the engine, hence no lock.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>

namespace pith {

class FrameArena {
 public:
  FrameArena() = default;
  FrameArena(const FrameArena&) = delete;
  FrameArena& operator=(const FrameArena&) = delete;
  ~FrameArena();

  void* allocate(std::size_t bytes) {
    const std::size_t size_class = (bytes + granule - 1) / granule;
    if (size_class >= classes || !free_[size_class]) return allocate_new(bytes, size_class);
    ++live_;
    void* frame = free_[size_class];
    free_[size_class] = *static_cast<void**>(frame);
    return frame;
  }
  static void free(void* frame) noexcept;

  std::size_t live() const { return live_; }

 private:
  void* allocate_new(std::size_t bytes, std::size_t size_class);

  static constexpr std::size_t granule = 128;
  static constexpr std::size_t classes = 64;  // frames up to 8 KiB; larger ones go to the heap

  struct Block {
    FrameArena* arena;
    std::uint32_t size_class;
  };
  static constexpr std::size_t header_bytes = 16;
  static_assert(sizeof(Block) <= header_bytes);

  std::array<void*, classes> free_{};
  std::size_t live_ = 0;
};

// A coroutine's frame comes from an arena if its first parameter satisfies this.
template <class T>
concept FrameSource = requires(T& source) {
  { source.frame_arena() } -> std::same_as<FrameArena&>;
};

}  // namespace pith
