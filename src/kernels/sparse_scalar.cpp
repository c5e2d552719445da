#include "kernels/sparse_scalar.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "kernels/element.hpp"
#include "kernels/scalar.hpp"

namespace pith::kernels::scalar {

namespace {

float value_at(const std::byte* values, std::size_t i, DType type) {
  if (type == DType::f32) return load<float>(values, i);
  const auto code = load<std::uint16_t>(values, i);
  return type == DType::bf16 ? decode<Bfloat16>(code) : decode<Float16>(code);
}

// Rounded once; clipped to the type's largest number, because the rest stays with the sender.
void put_value(std::byte* values, std::size_t i, DType type, float value) {
  if (type == DType::f32) return store(values, i, value);
  const float largest = type == DType::bf16 ? largest_bf16 : largest_f16;
  const float clipped = std::isnan(value) ? value : std::clamp(value, -largest, largest);
  if (type == DType::bf16) return store(values, i, encode<Bfloat16>(clipped));
  store(values, i, encode<Float16>(clipped));
}

std::uint32_t magnitude_bits(float value) {
  return std::bit_cast<std::uint32_t>(value) & 0x7fffffffu;
}

void count_in(MagnitudeHistogram& histogram, float value) {
  const std::size_t bin = magnitude_bits(value) >> MagnitudeHistogram::shift;
  ++histogram.counts[bin];
  histogram.squares[bin] += double(value) * double(value);
}

// Computes the new sum at i and counts it into `result`; false where it is not finite.
bool add_one(const AccumulateKernel::Args& args, std::size_t i, PassResult& result, float& sum) {
  const float old = args.fresh ? 0.0f : args.accumulator[i];
  sum = args.gradient ? old + value_at(args.gradient, i, args.type) : old;
  if (!std::isfinite(sum)) {
    ++result.nonfinite;
    args.accumulator[i] = args.gradient ? old : 0.0f;
    return false;
  }
  result.squares += double(sum) * double(sum);
  args.accumulator[i] = sum;
  if (args.histogram) count_in(*args.histogram, sum);
  return true;
}

}  // namespace

void accumulate(const AccumulateKernel::Args& args) {
  PassResult result;
  float sum = 0;
  for (std::size_t i = 0; i < args.count; ++i) add_one(args, i, result, sum);
  *args.result = result;
}

void select(const SelectKernel::Args& args) {
  PassResult result;
  for (std::size_t i = 0; i < args.pass.count; ++i) {
    float sum = 0;
    if (!add_one(args.pass, i, result, sum) || !(std::fabs(sum) >= args.threshold)) continue;
    if (result.selected < args.capacity) {
      args.indices[result.selected] = args.first + static_cast<std::uint32_t>(i);
      args.values[result.selected] = sum;
      args.pass.accumulator[i] = 0;
    }
    ++result.selected;
  }
  *args.pass.result = result;
}

void sample(const SampleKernel::Args& args) {
  constexpr std::size_t lines_ahead = 16;
  const AccumulateKernel::Args& pass = args.pass;
  const std::size_t ahead = lines_ahead * args.stride;
  float* out = args.magnitudes;
  for (std::size_t line = 0; line < args.lines; ++line) {
    const std::size_t at = line * args.stride;
    if (at + ahead < pass.count) {
      __builtin_prefetch(pass.accumulator + at + ahead);
      if (pass.gradient) __builtin_prefetch(pass.gradient + (at + ahead) * size_of(pass.type));
    }
    for (std::size_t i = at; i < at + SampleKernel::line; ++i) {
      const float old = pass.fresh ? 0.0f : pass.accumulator[i];
      const float sum = pass.gradient ? old + value_at(pass.gradient, i, pass.type) : old;
      *out++ = std::isfinite(sum) ? std::fabs(sum) : 0.0f;
    }
  }
}

void histogram(const HistogramKernel::Args& args) {
  for (std::size_t i = 0; i < args.count; ++i) {
    if (std::isfinite(args.values[i])) count_in(*args.histogram, args.values[i]);
  }
}

void keep_largest(const KeepLargestKernel::Args& args) {
  std::vector<std::size_t> order(args.count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return magnitude_bits(args.values[a]) > magnitude_bits(args.values[b]);
  });
  std::vector<bool> kept(args.count);
  for (std::size_t i = 0; i < args.k; ++i) kept[order[i]] = true;
  *args.smallest = std::fabs(args.values[order[args.k - 1]]);
  std::size_t out = 0;
  double squares = 0;
  for (std::size_t i = 0; i < args.count; ++i) {
    const float value = args.values[i];
    const std::uint32_t index = args.indices[i];
    if (!kept[i]) {
      if (args.accumulator) args.accumulator[index] = value;
      continue;
    }
    args.indices[out] = index;
    args.values[out++] = value;
    squares += double(value) * double(value);
  }
  *args.squares = squares;
}

void split(const SplitKernel::Args& args) {
  std::size_t kept = 0;
  std::size_t lower = 0;
  for (std::size_t i = 0; i < args.count; ++i) {
    const std::uint32_t index = args.indices[i];
    const float value = args.values[i];
    const bool keeps = std::fabs(value) >= args.threshold;
    std::uint32_t* indices = keeps ? args.indices : args.lower_indices;
    float* values = keeps ? args.values : args.lower_values;
    std::size_t& at = keeps ? kept : lower;
    indices[at] = index;
    values[at++] = value;
  }
  *args.kept = kept;
  *args.lower = lower;
}

void squares(const SquaresKernel::Args& args) {
  double sum = 0;
  for (std::size_t i = 0; i < args.count; ++i) {
    const double value = value_at(args.values, i, args.type);
    sum += value * value;
  }
  *args.squares = sum;
}

void take(const TakeKernel::Args& args) {
  double squares = 0;
  for (std::size_t i = 0; i < args.count; ++i) {
    float& from = args.accumulator[args.indices[i]];
    put_value(args.values, i, args.type, from);
    const float taken = value_at(args.values, i, args.type);
    squares += double(taken) * double(taken);
    from -= taken;
  }
  *args.squares = squares;
}

void round_values(const RoundKernel::Args& args) {
  for (std::size_t i = 0; i < args.count; ++i) {
    const float value = args.in[i];
    put_value(args.out, i, args.type, value);
    if (args.type == DType::f32) continue;
    args.accumulator[args.indices[i]] += value - value_at(args.out, i, args.type);
  }
}

void give_back(const ReturnKernel::Args& args) {
  for (std::size_t i = 0; i < args.count; ++i) {
    args.accumulator[args.indices[i]] += value_at(args.values, i, args.type);
  }
}

void sum_values(const SumValuesKernel::Args& args) {
  for (std::size_t i = 0; i < args.count; ++i) {
    float sum = value_at(args.in[0], i, args.type);
    for (std::size_t k = 1; k < args.n; ++k) sum += value_at(args.in[k], i, args.type);
    put_value(args.out, i, args.type, sum);
    if (args.accumulator && args.type != DType::f32) {
      const float lost = sum - value_at(args.out, i, args.type);
      // The rounding error of a sum beyond float32 is not finite and cannot be kept.
      if (std::isfinite(lost)) args.accumulator[args.indices[i]] += lost;
    }
  }
}

void sum_lists(const SumListsKernel::Args& args) {
  for (std::size_t l = 0; l < args.n; ++l) {
    const SparseList& list = args.lists[l];
    for (std::size_t i = 0; i < list.count; ++i) {
      const std::size_t at = list.indices[i] - args.first;
      const std::uint64_t bit = std::uint64_t{1} << (at % 64);
      const float value = value_at(list.values, i, args.type);
      // The first value is stored, not added, so that a single -0 keeps its sign.
      args.sums[at] = (args.touched[at / 64] & bit) != 0 ? args.sums[at] + value : value;
      args.touched[at / 64] |= bit;
    }
  }
  std::size_t count = 0;
  for (std::size_t word = 0; word < (args.span + 63) / 64; ++word) {
    for (std::uint64_t bits = args.touched[word]; bits != 0; bits &= bits - 1) {
      const std::size_t at = word * 64 + static_cast<std::size_t>(std::countr_zero(bits));
      args.indices[count] = args.first + static_cast<std::uint32_t>(at);
      args.values[count++] = args.sums[at];
      args.sums[at] = 0;
    }
    args.touched[word] = 0;
  }
  *args.count = count;
}

namespace {

// Results are rounded once; f16 overflows to infinity.
void put_result(std::byte* out, std::size_t i, DType type, float value) {
  if (type == DType::f32) return store(out, i, value);
  store(out, i, type == DType::bf16 ? encode<Bfloat16>(value) : encode<Float16>(value));
}

}  // namespace

void scatter(const ScatterKernel::Args& args) {
  std::memset(args.out, 0, args.span * size_of(args.type));
  for (std::size_t i = 0; i < args.count; ++i) {
    const float value = value_at(args.values, i, args.value_type) / args.divisor;
    put_result(args.out, args.indices[i] - args.first, args.type, value);
  }
}

void convert(const ConvertKernel::Args& args) {
  for (std::size_t i = 0; i < args.count; ++i) {
    put_result(args.out, i, args.type, value_at(args.in, i, args.in_type) / args.divisor);
  }
}

void zero(const ZeroKernel::Args& args) { std::memset(args.out, 0, args.bytes); }

void fill_nan(const FillNanKernel::Args& args) {
  for (std::size_t i = 0; i < args.count; ++i) {
    put_result(args.out, i, args.type, std::bit_cast<float>(nan_f32));
  }
}

}  // namespace pith::kernels::scalar
