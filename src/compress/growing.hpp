// An array that only grows and whose elements are uninitialised: memory that calls reuse.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>

namespace pith {

// T is trivially copyable.
template <class T>
class Growing {
 public:
  T* data() { return memory_.get(); }
  const T* data() const { return memory_.get(); }
  std::size_t room() const { return room_; }

  // Room for at least `room` elements; the first `keep` of them keep their values. Invalidates
  // pointers.
  T* reserve(std::size_t room, std::size_t keep = 0) {
    if (room <= room_) return memory_.get();
    const std::size_t grown = std::max(room, room_ + room_ / 2);
    auto larger = std::make_unique_for_overwrite<T[]>(grown);
    if (keep > 0) std::memcpy(larger.get(), memory_.get(), keep * sizeof(T));
    memory_ = std::move(larger);
    room_ = grown;
    return memory_.get();
  }

 private:
  std::unique_ptr<T[]> memory_;
  std::size_t room_ = 0;
};

}  // namespace pith
