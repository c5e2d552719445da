// A list that is cleared and filled again. Its elements keep their memory, so it allocates nothing
// once it has reached its largest size. Elements never move.
#pragma once

#include <cstddef>
#include <deque>
#include <utility>

namespace pith {

// T is default-constructible; its reset() or clear() drops its contents but keeps its memory.
template <class T>
class Refilled {
 public:
  // Adds an element in the state after reset() or clear().
  T& add() {
    if (size_ == elements_.size()) elements_.emplace_back();
    return elements_[size_++];
  }
  void clear() {
    for (T& element : *this) {
      if constexpr (requires { element.reset(); }) {
        element.reset();
      } else {
        element.clear();
      }
    }
    size_ = 0;
  }
  void swap(Refilled& other) noexcept {
    elements_.swap(other.elements_);
    std::swap(size_, other.size_);
  }

  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  auto begin() { return elements_.begin(); }
  auto begin() const { return elements_.begin(); }
  auto end() { return begin() + static_cast<std::ptrdiff_t>(size_); }
  auto end() const { return begin() + static_cast<std::ptrdiff_t>(size_); }

 private:
  std::deque<T> elements_;
  std::size_t size_ = 0;
};

}  // namespace pith
