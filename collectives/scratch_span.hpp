// Scratch memory as elements.
#pragma once

#include <cstddef>
#include <span>

#include "core/compute.hpp"

namespace pith {

template <class T>
std::span<T> span_of(const Scratch& memory, std::size_t count) {
  return {reinterpret_cast<T*>(memory.bytes().data), count};
}

}  // namespace pith
