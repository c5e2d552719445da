#include "compress/thresholds/sign_election.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

namespace pith {

namespace {

std::uint32_t magnitude_bits(float value) {
  return std::bit_cast<std::uint32_t>(value) & 0x7fffffffU;
}

bool takes(SignElection::Side& side, std::uint32_t bits) {
  if (side.count == 0 || bits < side.cut) return false;
  if (bits > side.cut) return true;
  if (side.equal == 0) return false;
  --side.equal;
  return true;
}

}  // namespace

SignElection::Side SignElection::side_of(std::span<const float> values,
                                         std::span<std::uint32_t> room, bool negative) const {
  std::size_t found = 0;
  for (const float value : values) {
    if (value != 0 && (value < 0) == negative) room[found++] = magnitude_bits(value);
  }
  Side side;
  side.count = std::min(most_, found);
  if (side.count == 0) return side;
  const auto last = room.begin() + static_cast<std::ptrdiff_t>(side.count) - 1;
  std::nth_element(room.begin(), last, room.begin() + static_cast<std::ptrdiff_t>(found),
                   std::greater<>());
  side.cut = *last;
  const auto larger =
      std::count_if(room.begin(), last, [&](std::uint32_t bits) { return bits > side.cut; });
  side.equal = side.count - static_cast<std::size_t>(larger);
  // In the order of the values, so that the sum has the same bits everywhere.
  Side left = side;
  for (const float value : values) {
    if (value == 0 || (value < 0) != negative || !takes(left, magnitude_bits(value))) continue;
    side.sum += double(value);
  }
  return side;
}

SignElection::SignElection(std::span<const float> values, std::size_t most,
                           std::span<std::uint32_t> room)
    : most_(most), above_(side_of(values, room, false)), below_(side_of(values, room, true)) {}

float SignElection::least() const {
  const bool only_above = below_.count == 0;
  const bool only_below = above_.count == 0;
  if (only_above) return std::bit_cast<float>(above_.cut);
  return std::bit_cast<float>(only_below ? below_.cut : std::min(above_.cut, below_.cut));
}

bool SignElection::elects(float value) {
  if (value == 0) return false;
  return takes(value > 0 ? above_ : below_, magnitude_bits(value));
}

}  // namespace pith
