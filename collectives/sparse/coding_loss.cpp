#include "collectives/sparse/coding_loss.hpp"

#include <algorithm>

#include "core/sparse_kernel_args.hpp"

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

double lost_by_levels(const Coding& coding, std::span<const float> magnitudes) {
  double lost = 0;
  while (!magnitudes.empty()) {
    const auto block = magnitudes.first(std::min<std::size_t>(coding.block, magnitudes.size()));
    lost += lost_of_block(coding, block);
    magnitudes = magnitudes.subspan(block.size());
  }
  return lost;
}

double lost_in_trial(Compute& host, const Coding& coding, std::span<const float> values) {
  const std::size_t coded_bytes = coding.bytes(values.size());
  const Scratch memory(host, values.size_bytes() + coded_bytes);
  std::byte* const decoded = memory.bytes().data;
  std::byte* const coded = decoded + values.size_bytes();
  host.run<EncodeValuesKernel>({coding, {}, values.data(), values.size(), coded});
  host.run<DecodeValuesKernel>({coding, coded, values.size(), decoded, DType::f32, 1});
  const auto* const found = reinterpret_cast<const float*>(decoded);
  double lost = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double off = double(values[i]) - double(found[i]);
    lost += off * off;
  }
  return lost;
}

}  // namespace

double squares_lost(Compute& host, const Coding& coding, std::span<const float> magnitudes) {
  if (coding.kind == Coding::Kind::bf16 || magnitudes.empty()) return 0;
  const bool is_known = coding.kind == Coding::Kind::levels && coding.draws && coding.clip == 0;
  return is_known ? lost_by_levels(coding, magnitudes) : lost_in_trial(host, coding, magnitudes);
}

}  // namespace pith
