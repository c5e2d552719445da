#include "frame/topk_reference.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "kernels/cast.hpp"

namespace pith_perf {
namespace {

float rounded(float value, pith::DType type) {
  std::byte narrow[sizeof(float)];
  auto* const at = reinterpret_cast<std::byte*>(&value);
  pith::kernels::cast(narrow, type, at, pith::DType::f32, 1);
  pith::kernels::cast(at, pith::DType::f32, narrow, type, 1);
  return value;
}

}  // namespace

Pairs take_topk(std::span<float> sums, std::size_t k, pith::DType values) {
  std::vector<float> magnitudes(sums.size());
  std::transform(sums.begin(), sums.end(), magnitudes.begin(),
                 [](float x) { return std::fabs(x); });
  const auto kth = magnitudes.begin() + static_cast<std::ptrdiff_t>(k) - 1;
  std::nth_element(magnitudes.begin(), kth, magnitudes.end(), std::greater<>());
  const float threshold = *kth;
  // Before the k-th are all that are above it, and some that equal it.
  const auto above = static_cast<std::size_t>(
      std::count_if(magnitudes.begin(), kth, [&](float x) { return x > threshold; }));
  std::size_t ties = k - above;
  Pairs pairs;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const float magnitude = std::fabs(sums[i]);
    if (magnitude < threshold || (magnitude == threshold && ties == 0)) continue;
    if (magnitude == threshold) --ties;
    const float sent = rounded(sums[i], values);
    pairs.indices.push_back(static_cast<std::uint32_t>(i));
    pairs.values.push_back(sent);
    sums[i] -= sent;
  }
  return pairs;
}

}  // namespace pith_perf
