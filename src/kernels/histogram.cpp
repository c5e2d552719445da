#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>

#include "kernels/magnitude_counts.hpp"
#include "kernels/sparse.hpp"
#include "kernels/sparse_scalar.hpp"

namespace pith::kernels {

namespace {

constexpr std::size_t first_infinite_bin = 0x7f800000u >> MagnitudeHistogram::shift;
// Below this many elements, clearing the copies would cost more than they save.
constexpr std::size_t few = 4096;

std::size_t bin_of(float value) {
  constexpr unsigned sign = 1;
  return std::bit_cast<std::uint32_t>(value) << sign >> (MagnitudeHistogram::shift + sign);
}

}  // namespace

MagnitudeCounts& MagnitudeCounts::of_thread() {
  thread_local const auto counts = std::make_unique<MagnitudeCounts>();
  return *counts;
}

void MagnitudeCounts::add(const float* values, std::size_t count) {
  const auto add_one = [this](std::size_t copy, float value) {
    Bin& bin = bins_[copy][bin_of(value)];
    const Bin old = bin;
    const double wide = double(value);
    bin = {old.squares + wide * wide, old.count + 1.0};
  };
  std::size_t i = 0;
  for (; i + copies <= count; i += copies) {
    add_one(0, values[i]);
    add_one(1, values[i + 1]);
    add_one(2, values[i + 2]);
    add_one(3, values[i + 3]);
  }
  for (; i < count; ++i) add_one(0, values[i]);
}

void MagnitudeCounts::move_to(MagnitudeHistogram& histogram) {
  for (auto& copy : bins_) {
    for (std::size_t bin = 0; bin < first_infinite_bin; ++bin) {
      histogram.counts[bin] += static_cast<std::uint64_t>(copy[bin].count);
      histogram.squares[bin] += copy[bin].squares;
    }
    copy.fill({});
  }
}

void histogram(const HistogramKernel::Args& args) {
  if (args.count < few) return scalar::histogram(args);
  MagnitudeCounts& counts = MagnitudeCounts::of_thread();
  counts.add(args.values, args.count);
  counts.move_to(*args.histogram);
}

}  // namespace pith::kernels
