#include "collectives/sparse/whole/largest_sums.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>

namespace pith {

std::uint32_t magnitude_bits(float value) {
  constexpr auto largest = std::bit_cast<std::uint32_t>(std::numeric_limits<float>::max());
  return std::min(std::bit_cast<std::uint32_t>(value) & 0x7fffffffu, largest);
}

bool Cut::keeps(float value) {
  const std::uint32_t bits = magnitude_bits(value);
  if (bits != magnitude) return bits > magnitude;
  if (equal == 0) return false;
  --equal;
  return true;
}

Cut cut_behind(std::span<std::uint32_t> magnitudes, std::size_t keep) {
  if (keep >= magnitudes.size()) return {};
  if (keep == 0) return {std::numeric_limits<std::uint32_t>::max(), 0};
  const auto last = magnitudes.begin() + static_cast<std::ptrdiff_t>(keep) - 1;
  std::nth_element(magnitudes.begin(), last, magnitudes.end(), std::greater<>());
  const auto larger =
      std::count_if(magnitudes.begin(), last, [last](std::uint32_t bits) { return bits > *last; });
  return {*last, keep - static_cast<std::size_t>(larger)};
}

namespace {

// Of a sum beyond float32 nothing can be kept.
float finite_or_zero(float value) { return std::isfinite(value) ? value : 0.0F; }

}  // namespace

void reduce_to(Cut& cut, PairList& sums, PairList* dropped) {
  const std::size_t count = sums.count();
  std::uint32_t* const indices = sums.indices();
  auto* const values = reinterpret_cast<float*>(sums.values());
  if (dropped) dropped->reserve(count);
  std::uint32_t* const left = dropped ? dropped->indices(dropped->count()) : nullptr;
  auto* const lost =
      dropped ? reinterpret_cast<float*>(dropped->values(dropped->count())) : nullptr;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (cut.keeps(values[i])) {
      indices[kept] = indices[i];
      values[kept++] = values[i];
    } else if (dropped) {
      left[i - kept] = indices[i];
      lost[i - kept] = finite_or_zero(values[i]);
    }
  }
  if (dropped) dropped->end_run(count - kept);
  sums.begin(DType::f32);
  sums.end_run(kept);
}

void narrow(Call& call, PairList& sums, DType type, PairList& losses) {
  const std::size_t count = sums.count();
  losses.reserve(count);
  std::copy_n(sums.indices(), count, losses.indices(losses.count()));
  auto* const lost = reinterpret_cast<float*>(losses.values(losses.count()));
  std::fill_n(lost, count, 0.0F);
  constexpr std::size_t each = sizeof(float) + sizeof(std::uint32_t);
  const Scratch memory(call.host_compute(), std::max<std::size_t>(count, 1) * each);
  auto* const values = reinterpret_cast<float*>(memory.bytes().data);
  auto* const numbers = reinterpret_cast<std::uint32_t*>(values + count);
  std::copy_n(reinterpret_cast<const float*>(sums.values()), count, values);
  std::iota(numbers, numbers + count, 0u);
  sums.begin(type);
  call.run<RoundKernel>({lost, numbers, values, count, sums.values(), type});
  sums.end_run(count);
  std::transform(lost, lost + count, lost, finite_or_zero);
  losses.end_run(count);
}

void keep_pairs(Call& call, Compressor& compressor, const SparseList& list, DType type, Among where,
                const SparseList& result) {
  if (list.count == 0) return;
  const Scratch memory(call.host_compute(), list.count * (sizeof(float) + sizeof(std::uint32_t)));
  auto* const values = reinterpret_cast<float*>(memory.bytes().data);
  auto* const indices = reinterpret_cast<std::uint32_t*>(values + list.count);
  call.run<ConvertKernel>({memory.bytes().data, DType::f32, list.values, type, list.count, 1});
  const std::uint32_t* at = result.indices;
  const std::uint32_t* const end = result.indices + result.count;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < list.count; ++i) {
    while (at != end && *at < list.indices[i]) ++at;
    const bool in_result = at != end && *at == list.indices[i];
    if (in_result != (where == Among::result)) continue;
    indices[kept] = list.indices[i];
    values[kept++] = values[i];
  }
  compressor.keep_losses(call.host_compute(), {indices, memory.bytes().data, kept});
}

}  // namespace pith
