// The numbers that `dynamic` codes stand for: an 8-bit dynamic tree [Dettmers, "8-bit
// approximations for parallelism in deep learning", ICLR 2016], as block-wise optimizer states use
// it [Dettmers et al., "8-bit optimizers via block-wise quantization", ICLR 2022].
//
// Seven decades below one; decade i, from 10^(i-7) to 10^(i-6), has 2^i numbers, the centres of as
// many equal parts of its range. The further a magnitude is below the largest, the fewer digits it
// keeps. Zero and one complete them. A code counts them in order: 127 is zero, 255 is one.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace pith::kernels {

struct DynamicMap {
  static constexpr int decades = 7;
  static constexpr int zero = 127;        // its code
  static constexpr int magnitudes = 129;  // with zero and one
  static constexpr int most_negative =
      127;  // magnitudes of negative numbers: there is no minus one

  // In order; k in [2^i, 2^(i+1)) belong to decade i.
  std::array<float, magnitudes> magnitude{};
  // What is at least this is nearer to magnitude k than to the one below it, or as near.
  std::array<float, magnitudes> bound{};
  std::array<float, 256> number{};  // by code
};

// The least float32 that is not below.
constexpr float rounded_up(double value) {
  const auto nearest = static_cast<float>(value);
  if (double{nearest} >= value) return nearest;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(nearest) + 1);
}

constexpr DynamicMap make_dynamic_map() {
  DynamicMap map;
  constexpr std::array<double, DynamicMap::decades> tops = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1};
  std::size_t k = 1;
  for (std::size_t i = 0; i < tops.size(); ++i) {
    const std::size_t parts = std::size_t{1} << i;
    for (std::size_t j = 0; j < parts; ++j) {
      const double centre = 0.1 + 0.9 * (2 * double(j) + 1) / (2 * double(parts));
      map.magnitude[k++] = static_cast<float>(tops[i] * centre);
    }
  }
  map.magnitude[k] = 1;
  for (k = 1; k < map.bound.size(); ++k) {
    map.bound[k] = rounded_up((double{map.magnitude[k - 1]} + double{map.magnitude[k]}) / 2);
  }
  for (std::size_t code = 0; code < map.number.size(); ++code) {
    const bool is_below = code < DynamicMap::zero;
    const float magnitude =
        map.magnitude[is_below ? DynamicMap::zero - code : code - DynamicMap::zero];
    map.number[code] = is_below ? -magnitude : magnitude;
  }
  return map;
}
inline constexpr DynamicMap dynamic_map = make_dynamic_map();

}  // namespace pith::kernels
