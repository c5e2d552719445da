// A few objects that stay where they are made, without memory of the heap.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <utility>

namespace pith {

template <class T, std::size_t most>
class InplaceVector {
 public:
  InplaceVector() = default;
  InplaceVector(const InplaceVector&) = delete;
  InplaceVector& operator=(const InplaceVector&) = delete;
  ~InplaceVector() { clear(); }

  // Precondition: there are less than `most`.
  template <class... Args>
  T& add(Args&&... args) {
    void* const where = at() + count_++;
    // Without parentheses, which would clear the object first.
    if constexpr (sizeof...(Args) == 0) {
      return *::new (where) T;
    } else {
      return *::new (where) T(std::forward<Args>(args)...);
    }
  }
  std::span<T> all() { return {at(), count_}; }
  void clear() { std::destroy_n(at(), std::exchange(count_, 0)); }

 private:
  T* at() { return reinterpret_cast<T*>(storage_); }

  std::size_t count_ = 0;
  alignas(T) std::byte storage_[most * sizeof(T)];
};

}  // namespace pith
