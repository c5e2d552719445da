// Turns Pith's errors into exceptions.
#pragma once

#include <fmt/format.h>
#include <pith/pith.h>

#include <stdexcept>

namespace pith_bench {

// Throws std::runtime_error with Pith's message unless `result` is pithSuccess.
inline void must(pithResult_t result, const char* call) {
  if (result == pithSuccess) return;
  throw std::runtime_error(
      fmt::format("{}: {}: {}", call, pithGetErrorString(result), pithGetLastError(nullptr)));
}

}  // namespace pith_bench
