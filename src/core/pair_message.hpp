// Messages between two ranks outside any collective: how their headers tell what they are.
//
// They have a lane of their own, and a number for each pair and direction in place of the call's.
// Their digest holds what both ends must agree on, readably, so that a receiver can name both.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.hpp"

namespace pith {

inline constexpr std::uint16_t pair_lane = 0xfffe;
// In this lane, the step of the word from a message's receiver that it receives the message: it
// travels against the direction whose number it has. Its digest is 0.
inline constexpr std::uint32_t receiving_step = std::uint32_t{1} << 31;

struct PairDigest {
  DType type = DType::u8;
  std::size_t count = 0;

  static constexpr unsigned count_bits = 56;

  constexpr std::uint64_t encode() const {
    return (static_cast<std::uint64_t>(type) + 1) << count_bits | count;
  }
  static constexpr PairDigest decode(std::uint64_t digest) {
    return {static_cast<DType>((digest >> count_bits) - 1),
            digest & ((std::uint64_t{1} << count_bits) - 1)};
  }
};

}  // namespace pith
