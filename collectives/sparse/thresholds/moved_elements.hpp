// Elements that a kernel has moved out of an accumulator into a list, and that are not taken yet.
#pragma once

#include <algorithm>

#include "collectives/compressed.hpp"

namespace pith {

// In the vectors' memory. What is still here at the end returns: memory had run out, or the call
// has failed.
class MovedElements {
 public:
  MovedElements(const VectorQueue& queue, float* accumulator, std::size_t room)
      : queue_(queue),
        accumulator_(accumulator),
        indices_(queue.vectors(), std::max<std::size_t>(room, 1) * sizeof(std::uint32_t)),
        values_(queue.vectors(), std::max<std::size_t>(room, 1) * sizeof(float)) {}
  MovedElements(const MovedElements&) = delete;
  MovedElements& operator=(const MovedElements&) = delete;
  ~MovedElements() {
    if (count > 0) {
      queue_.run<ReturnKernel>({accumulator_, indices(), values_.bytes().data, count, DType::f32});
    }
  }
  FrameArena& frame_arena() const { return queue_.frame_arena(); }

  std::uint32_t* indices() const { return reinterpret_cast<std::uint32_t*>(indices_.bytes().data); }
  float* values() const { return reinterpret_cast<float*>(values_.bytes().data); }

  // They become a run of the compressor's taken(), rounded to its type; what that loses goes to the
  // accumulator.
  Task<Error> take(Compressor& compressor);

  std::size_t count = 0;

 private:
  const VectorQueue queue_;
  float* const accumulator_;
  Scratch indices_;
  Scratch values_;
};

}  // namespace pith
