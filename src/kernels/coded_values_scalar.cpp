#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "kernels/cast.hpp"
#include "kernels/coded/dynamic_map.hpp"
#include "kernels/coded_block.hpp"
#include "kernels/coded_values.hpp"
#include "kernels/scalar.hpp"
#include "kernels/sparse_scalar.hpp"

namespace pith::kernels::scalar {

namespace {

// A block, with zeros behind its values up to a whole number of bytes of codes.
using Values = std::array<float, Coding::most_block + 8 * Coding::granule>;

std::uint32_t sign_bit_of(const CodingInput& input, float value, std::uint32_t index) {
  if (value == 0) return sign_of_zero(input.key, index) ? 1 : 0;
  return value < 0 ? 1 : 0;
}

float mean_magnitude(const Values& values, std::size_t n) {
  BlockSums sums{};
  for (std::size_t i = 0; i < n; ++i) sums[i % block_sums] += std::fabs(values[i] * summed_part);
  return mean_of(sum_of(sums), n);
}

BlockMeasure two_means(const Values& values, std::size_t n) {
  BlockSums sums{};
  BlockSums sums_below{};
  std::size_t below = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const bool is_below = values[i] < 0;
    (is_below ? sums_below : sums)[i % block_sums] += values[i] * summed_part;
    below += is_below ? 1 : 0;
  }
  return {mean_of(sum_of(sums), n - below), mean_of(sum_of(sums_below), below)};
}

float mean_square(const Values& values, std::size_t n, std::uint32_t largest) {
  const float factor = square_factor(largest);
  BlockSums sums{};
  for (std::size_t i = 0; i < n; ++i) {
    const float part = values[i] * factor;
    sums[i % block_sums] += part * part;
  }
  return sum_of(sums) / static_cast<float>(n);
}

BlockMeasure measure_of(const Coding& coding, const CodingInput& input, const Values& values,
                        std::size_t n, std::uint32_t largest) {
  if (coding.kind == Coding::Kind::mean_signs) return {mean_magnitude(values, n)};
  if (coding.kind == Coding::Kind::two_means) return two_means(values, n);
  if (coding.clip > 0) return {0, 0, mean_square(values, n, largest)};
  return {input.scale};
}

// By the definition: the nearest number of the map, of two the one further from zero.
std::uint32_t dynamic_code_of(float scaled) {
  const auto& numbers = dynamic_numbers;
  const auto* const above = std::ranges::lower_bound(numbers, scaled);
  if (above == numbers.begin()) return 0;
  if (above == numbers.end()) return static_cast<std::uint32_t>(numbers.size() - 1);
  const float to_above = *above - scaled;
  const float to_below = scaled - *(above - 1);
  const bool takes_above = to_above < to_below || (to_above == to_below && scaled > 0);
  const auto* const nearest = takes_above ? above : above - 1;
  return static_cast<std::uint32_t>(nearest - numbers.begin());
}

std::uint32_t code_of(const Coding& coding, const BlockScale& block, float value,
                      std::uint32_t drawn) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (coding.kind == Coding::Kind::powers) {
    const std::uint32_t up = coding.draws ? drawn >> 9 : 1u << 22;
    const std::uint32_t top = std::bit_cast<std::uint32_t>(block.scale) >> 23;
    const std::uint32_t exponent = std::min(((bits & 0x7fffffffu) + up) >> 23, top);
    const std::uint32_t halvings = exponent == 0 ? 127 : std::min(top - exponent, 127u);
    return halvings | bits >> 31 << 7;
  }
  const float scaled = value * block.factor;
  if (coding.kind == Coding::Kind::e4m3) return encode<Float8e4m3>(static_cast<double>(scaled));
  if (coding.kind == Coding::Kind::e5m2) return encode<Float8e5m2>(static_cast<double>(scaled));
  if (coding.kind == Coding::Kind::dynamic) return dynamic_code_of(scaled);
  if (coding.kind == Coding::Kind::f16) {
    return encode<Float16>(double{std::clamp(scaled, -largest_f16, largest_f16)});
  }
  if (coding.kind == Coding::Kind::ternary) {
    return static_cast<std::uint32_t>(static_cast<int>(std::nearbyint(scaled)) + 1);
  }
  const int last = last_level(coding.bits);
  const float level = coding.draws ? std::floor(scaled + static_cast<float>(drawn >> 8) * 0x1p-24f)
                                   : std::nearbyint(scaled);
  const int clipped = std::clamp(static_cast<int>(level), -last, last);
  return static_cast<std::uint32_t>(clipped) & ((1u << coding.bits) - 1);
}

float value_of(const Coding& coding, const BlockScale& block, std::uint32_t code) {
  const float scale = block.scale;
  if (coding.kind == Coding::Kind::two_means) return code != 0 ? block.below : scale;
  if (coding.kind == Coding::Kind::ternary) {
    return static_cast<float>(static_cast<int>(code) - 1) * scale;
  }
  if (is_of_signs(coding.kind)) return code != 0 ? -scale : scale;
  if (coding.kind == Coding::Kind::powers) {
    const float value = scale * std::bit_cast<float>((127 - (code & 127)) << 23);
    return code >> 7 != 0 ? -value : value;
  }
  const auto byte = static_cast<std::uint8_t>(code);
  if (coding.kind == Coding::Kind::e4m3) return decode<Float8e4m3>(byte) * scale;
  if (coding.kind == Coding::Kind::e5m2) return decode<Float8e5m2>(byte) * scale;
  if (coding.kind == Coding::Kind::dynamic) return dynamic_numbers[byte] * scale;
  if (coding.kind == Coding::Kind::f16) {
    return decode<Float16>(static_cast<std::uint16_t>(code)) * scale;
  }
  const unsigned unused = 32u - coding.bits;
  return static_cast<float>(static_cast<std::int32_t>(code << unused) >> unused) * scale;
}

std::uint32_t code_at(const Coding& coding, const CodingInput& input, const BlockScale& block,
                      const Values& values, std::size_t i) {
  const std::uint32_t index = input.first + static_cast<std::uint32_t>(i);
  if (is_of_signs(coding.kind)) return sign_bit_of(input, values[i], index);
  if (coding.kind == Coding::Kind::two_means) return values[i] < 0 ? 1 : 0;
  return code_of(coding, block, values[i], coding.draws ? drawn_bits(input.key, index) : 0);
}

// How many different codes there are, and what that in place k of a unit is multiplied by.
std::uint32_t codes_of(const Coding& coding) {
  return coding.kind == Coding::Kind::ternary ? 3 : 1u << coding.bits;
}
std::uint32_t place_of(const Coding& coding, std::size_t k) {
  return coding.kind == Coding::Kind::ternary ? ternary_places[k] : 1u << (k * coding.bits);
}

// Codes a block of `n` values; those from `n` on are overwritten by zeros.
void encode_block(const Coding& coding, const CodingInput& input, Values& values, std::size_t n,
                  std::byte* out) {
  const std::size_t units = coding.code_units(n);
  std::uint32_t largest = 0;
  std::fill(values.begin() + static_cast<std::ptrdiff_t>(n), values.end(), 0.0f);
  for (std::size_t i = 0; i < n; ++i) {
    largest = std::max(largest, std::bit_cast<std::uint32_t>(values[i]) & 0x7fffffffu);
  }
  const BlockScale block = scale_of(coding, largest, measure_of(coding, input, values, n, largest));
  write_scales(coding, block, out);
  out += coding.scale_bytes();
  std::memset(out, 0, coding.code_bytes(n));
  if (std::isnan(block.scale)) return;
  for (std::size_t j = 0; j < units; ++j) {
    std::uint32_t codes = 0;
    for (std::size_t k = 0; k < coding.codes_per_unit(); ++k) {
      const std::size_t i = k * units + j;
      codes += code_at(coding, input, block, values, i) * place_of(coding, k);
    }
    std::memcpy(out + j * coding.unit_bytes(), &codes, coding.unit_bytes());
  }
}

template <class Put>
void decode_block(const Coding& coding, const std::byte* in, std::size_t n, const Put& put) {
  const std::size_t units = coding.code_units(n);
  const BlockScale block = read_scales(coding, in);
  const std::byte* codes = in + coding.scale_bytes();
  for (std::size_t i = 0; i < n; ++i) {
    std::uint32_t unit = 0;
    std::memcpy(&unit, codes + i % units * coding.unit_bytes(), coding.unit_bytes());
    const std::uint32_t code = unit / place_of(coding, i / units) % codes_of(coding);
    put(i, value_of(coding, block, code));
  }
}

CodingInput at(const CodingInput& input, std::size_t done) {
  CodingInput moved = input;
  moved.first += static_cast<std::uint32_t>(done);
  return moved;
}

}  // namespace

void encode_values(const EncodeValuesKernel::Args& args) {
  if (args.coding.kind == Coding::Kind::bf16) return convert(as_conversion(args));
  Values values;
  std::byte* out = args.out;
  for (std::size_t done = 0; done < args.count; done += args.coding.block) {
    const std::size_t n = std::min<std::size_t>(args.coding.block, args.count - done);
    std::copy_n(args.in + done, n, values.begin());
    encode_block(args.coding, at(args.input, done), values, n, out);
    out += args.coding.bytes(n);
  }
}

void decode_values(const DecodeValuesKernel::Args& args) {
  if (args.coding.kind == Coding::Kind::bf16) return convert(as_conversion(args));
  Values values;
  const std::byte* in = args.in;
  for (std::size_t done = 0; done < args.count; done += args.coding.block) {
    const std::size_t n = std::min<std::size_t>(args.coding.block, args.count - done);
    decode_block(args.coding, in, n,
                 [&](std::size_t i, float value) { values[i] = value / args.divisor; });
    if (args.instead) replace_nonfinite(values.data(), args.instead + done, args.divisor, n);
    std::byte* out = args.out + done * size_of(args.type);
    const auto* from = reinterpret_cast<const std::byte*>(values.data());
    if (args.type == DType::f32) {
      std::memcpy(out, from, n * sizeof(float));
    } else {
      cast(out, args.type, from, DType::f32, n);
    }
    in += args.coding.bytes(n);
  }
}

void sum_coded(const SumCodedKernel::Args& args) {
  if (args.coding.kind == Coding::Kind::bf16) return sum_values(as_plain_sum(args));
  Values sums;
  Values decoded;
  for (std::size_t done = 0; done < args.count; done += args.coding.block) {
    const std::size_t n = std::min<std::size_t>(args.coding.block, args.count - done);
    const std::size_t begin = args.coding.bytes(done);
    if (is_marked(args, begin)) {
      mark(args.coding, n, args.out + begin);
      continue;
    }
    const std::size_t first = args.own ? args.own_rank : 0;
    if (args.own) {
      std::copy_n(args.own + done, n, sums.begin());
    } else {
      decode_block(args.coding, args.in[0] + begin, n,
                   [&](std::size_t i, float value) { sums[i] = value; });
    }
    for (std::size_t k = 0; k < args.n; ++k) {
      if (k == first) continue;
      decode_block(args.coding, args.in[k] + begin, n,
                   [&](std::size_t i, float value) { sums[i] += value; });
    }
    encode_block(args.coding, at(args.input, done), sums, n, args.out + begin);
    if (!args.own) continue;
    decode_block(args.coding, args.out + begin, n,
                 [&](std::size_t i, float value) { decoded[i] = value; });
    change_own(args.own + done, sums.data(), decoded.data(), n, args.change + done);
  }
}

}  // namespace pith::kernels::scalar
