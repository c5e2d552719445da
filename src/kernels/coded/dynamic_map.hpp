// The numbers that `dynamic` codes stand for: an 8-bit dynamic tree [Dettmers, "8-bit
// approximations for parallelism in deep learning", ICLR 2016], as block-wise optimizer states use
// it [Dettmers et al., "8-bit optimizers via block-wise quantization", ICLR 2022].
//
// Seven decades below one; decade i, from 10^(i-7) to 10^(i-6), has 2^i numbers, the centres of as
// many equal parts of its range. The further a magnitude is below the largest, the fewer digits it
// keeps. Zero and one complete them. A code counts them in order: 127 is zero, 255 is one.
//
// A value's code is that of the nearest number, by distances in float32; of two the one further
// from zero.
#pragma once

#include <array>
#include <cstddef>

namespace pith::kernels {

struct DynamicMap {
  static constexpr int decades = 7;
  static constexpr int zero = 127;           // its code
  static constexpr int last = 128;           // magnitudes but zero; the last one is one
  static constexpr int most_negative = 127;  // there is no minus one
  // The upper ends of decades. Zeros, for what belongs to none, fill them up to the longest vector.
  static constexpr std::array<float, 16> tops = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1};
  static constexpr float begin = 0.1f;  // of a decade, as part of its end
  static constexpr float range = 0.9f;

  // Magnitudes k in [2^i, 2^(i+1)) belong to decade i. Each step is rounded to float32, so that
  // kernels which compute numbers get the bits of those that look them up.
  static constexpr float magnitude(int k) {
    if (k == 0 || k == last) return k == 0 ? 0.0f : 1.0f;
    std::size_t decade = 0;
    while (k >> (decade + 1) != 0) ++decade;
    const int parts = 1 << decade;
    const float centre = static_cast<float>(2 * (k - parts) + 1) / static_cast<float>(2 * parts);
    return tops[decade] * (begin + range * centre);
  }
  static constexpr float number(std::size_t code) {
    const int place = static_cast<int>(code) - zero;
    return place < 0 ? -magnitude(-place) : magnitude(place);
  }
  // What is about as near to the first number of a decade as to the one below.
  static constexpr float first_bound(int decade) {
    return (magnitude((1 << decade) - 1) + magnitude(1 << decade)) / 2;
  }
};

// By code.
inline constexpr std::array<float, 256> dynamic_numbers = [] {
  std::array<float, 256> numbers{};
  for (std::size_t code = 0; code < numbers.size(); ++code) {
    numbers[code] = DynamicMap::number(code);
  }
  return numbers;
}();

}  // namespace pith::kernels
