// Headers of point-to-point messages, which belong to no collective.
//
// They use a lane of their own. In place of the call's number they have a number counted per pair
// of ranks and direction. Their digest encodes type and count, on which both ends must agree, so
// that an error can name both sides' values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.hpp"

namespace pith {

inline constexpr std::uint16_t pair_lane = 0xfffe;
// The step, in this lane, of the notice by which the receiver of a message tells the sender that it
// has called Recv. The notice has the message's number, goes the opposite way, and its digest is 0.
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
