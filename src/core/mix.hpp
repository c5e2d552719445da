// Hashes of a few words, the same on every rank.
#pragma once

#include <cstdint>

namespace pith {

constexpr std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 29);
}

}  // namespace pith
