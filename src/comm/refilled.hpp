// A list that is emptied and filled again: its elements stay, with the memory that they hold, so
// that from its largest size on it allocates nothing. Elements never move.
#pragma once

#include <cstddef>
#include <deque>
#include <utility>

namespace pith {

// T is made without arguments, and reset() or clear() lets go of what it has but its memory.
template <class T>
class Refilled {
 public:
  // As after reset() or clear().
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
