#include "frame/coded_check.hpp"

#include <algorithm>
#include <cmath>

namespace pith_perf {
namespace {

using Kind = pith::Coding::Kind;

// Of one value; `largest` is the largest magnitude of its block.
double error_of(const pith::Coding& coding, double value, double largest) {
  switch (coding.kind) {
    case Kind::levels: {
      const double step = largest / ((1 << (coding.bits - 1)) - 1);
      return coding.draws ? step : step / 2;
    }
    case Kind::powers:
      return value + std::ldexp(largest, -120);
    case Kind::e4m3:
      return std::ldexp(value, -4) + std::ldexp(largest, -18);
    case Kind::e5m2:
      return std::ldexp(value, -3) + std::ldexp(largest, -31);
    case Kind::f16:
      return std::ldexp(value, -11) + std::ldexp(largest, -40);
    case Kind::dynamic:  // half the distance between two numbers, the most below one
      return 0.5 * value + 1e-6 * largest;
    case Kind::bf16:
      return std::ldexp(value, -8);
    case Kind::mean_signs:
    case Kind::two_means:
      return value + largest;
    case Kind::ternary:
      return largest;
    case Kind::signs:
      break;
  }
  return 0;
}

// error(value, largest): of a value, and of the largest magnitude of its block.
template <class Error>
void add_by_block(std::size_t block, std::span<const double> values, std::span<double> allowed,
                  const Error& error) {
  const auto most = [&](std::size_t i) { return std::abs(values[i]) + allowed[i]; };
  for (std::size_t begin = 0; begin < values.size(); begin += block) {
    const std::size_t end = std::min(begin + block, values.size());
    double largest = 0;
    for (std::size_t i = begin; i < end; ++i) largest = std::max(largest, most(i));
    for (std::size_t i = begin; i < end; ++i) allowed[i] += error(most(i), largest);
  }
}

}  // namespace

void add_coding_error(const pith::Coding& coding, std::span<const double> values,
                      std::span<double> allowed) {
  add_by_block(coding.block, values, allowed,
               [&](double value, double largest) { return error_of(coding, value, largest); });
}

void add_coding_error(const pith::VaryingCoding& coding, std::span<const double> values,
                      std::span<double> allowed) {
  if (coding.kind == pith::VaryingCoding::Kind::lossless) return;
  add_by_block(coding.block(), values, allowed, [&](double, double largest) {
    return std::min(double{coding.absolute}, largest * double{coding.relative});
  });
}

}  // namespace pith_perf
