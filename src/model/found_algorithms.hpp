// Algorithms that were found for calls of a size, by whichever thread asked first.
#pragma once

#include <array>
#include <atomic>

#include "model/choices.hpp"

namespace pith {

class FoundAlgorithms {
 public:
  // Null: not yet.
  const Algorithm* at(Collective collective, SizeClass size) const {
    return one(collective, size).load(std::memory_order_relaxed);
  }
  void set(Collective collective, SizeClass size, const Algorithm& algorithm) {
    found_[static_cast<std::size_t>(collective)][size.index()].store(&algorithm,
                                                                     std::memory_order_relaxed);
  }
  // What they were found by has changed.
  void forget() {
    for (OfSizes& sizes : found_) {
      for (auto& one : sizes) one.store(nullptr, std::memory_order_relaxed);
    }
  }

 private:
  using OfSizes = std::array<std::atomic<const Algorithm*>, SizeClass::count>;

  const std::atomic<const Algorithm*>& one(Collective collective, SizeClass size) const {
    return found_[static_cast<std::size_t>(collective)][size.index()];
  }

  std::array<OfSizes, collective_count> found_{};
};

}  // namespace pith
