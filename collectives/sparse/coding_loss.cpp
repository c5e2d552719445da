#include "collectives/sparse/coding_loss.hpp"

#include <algorithm>

namespace pith {

namespace {

// In units of a level. A value between two levels goes to the upper one as often as it is near it.
float lost_by_drawing(float value) {
  const float above = value - static_cast<float>(static_cast<int>(value));
  return above * (1 - above);
}

double lost_of_block(const Coding& coding, std::span<const float> block) {
  const auto last = static_cast<float>((1 << (coding.bits - 1)) - 1);
  const float level = *std::ranges::max_element(block) / last;
  if (!(level > 0)) return 0;
  float lost = 0;
  for (const float magnitude : block) {
    lost += lost_by_drawing(magnitude / level);
  }
  return double(lost) * double(level) * double(level);
}

}  // namespace

double squares_lost(const Coding& coding, std::span<const float> magnitudes) {
  if (!coding.draws) return 0;
  double lost = 0;
  while (!magnitudes.empty()) {
    const auto block = magnitudes.first(std::min<std::size_t>(coding.block, magnitudes.size()));
    lost += lost_of_block(coding, block);
    magnitudes = magnitudes.subspan(block.size());
  }
  return lost;
}

}  // namespace pith
