// Values coded in blocks: encoding and decoding, a thread block per block of values. Bit-identical
// to src/kernels/coded_values_scalar.cpp. Sums of coded values are the host's.
#pragma once

#include "cuda/kernels/draws.hpp"
#include "cuda/kernels/numbers.hpp"

namespace pith::cuda {

// As Coding of core/sparse/coding.hpp.
enum class CodeKind : std::uint8_t {
  levels,
  powers,
  signs,
  mean_signs,
  two_means,
  ternary,
  e4m3,
  e5m2,
  f16,
  dynamic
};

struct CodeForm {
  CodeKind kind;
  std::uint8_t bits;
  bool draws;
  std::uint16_t block;
  float clip;
  float sparsity;

  PITH_DEVICE std::size_t scale_bytes() const {
    return kind == CodeKind::two_means ? 2 * sizeof(float) : sizeof(float);
  }
  PITH_DEVICE unsigned unit_bytes() const { return bits > 8 ? 2 : 1; }
  PITH_DEVICE unsigned per_unit() const {
    return kind == CodeKind::ternary ? 5u : 8u * unit_bytes() / bits;
  }
  // A code in place k of a unit.
  PITH_DEVICE std::uint32_t put(std::uint32_t code, unsigned k) const {
    if (kind != CodeKind::ternary) return code << (k * bits);
    for (; k > 0; --k) code *= 3;
    return code;
  }
  PITH_DEVICE std::uint32_t get(std::uint32_t unit, unsigned k) const {
    if (kind != CodeKind::ternary) return unit >> (k * bits) & ((1u << bits) - 1);
    for (; k > 0; --k) unit /= 3;
    return unit % 3;
  }
  PITH_DEVICE std::size_t code_units(std::size_t values) const {
    constexpr std::size_t granule = 16;
    const std::size_t units = (values + per_unit() - 1) / per_unit();
    return (units + granule - 1) / granule * granule;
  }
  PITH_DEVICE std::size_t block_bytes() const {
    return scale_bytes() + code_units(block) * unit_bytes();
  }
  // Units may lie at any address.
  PITH_DEVICE void store_unit(std::byte* codes, std::size_t j, std::uint32_t unit) const {
    codes[j * unit_bytes()] = static_cast<std::byte>(unit);
    if (unit_bytes() == 2) codes[2 * j + 1] = static_cast<std::byte>(unit >> 8);
  }
  PITH_DEVICE std::uint32_t load_unit(const std::byte* codes, std::size_t j) const {
    const auto low = static_cast<std::uint32_t>(codes[j * unit_bytes()]);
    if (unit_bytes() == 1) return low;
    return low | static_cast<std::uint32_t>(codes[2 * j + 1]) << 8;
  }
  PITH_DEVICE bool of_signs() const {
    return kind == CodeKind::signs || kind == CodeKind::mean_signs;
  }
  PITH_DEVICE bool has_means() const { return of_signs() || kind == CodeKind::two_means; }
  PITH_DEVICE int last_level() const { return (1 << (bits - 1)) - 1; }
  PITH_DEVICE float last_value() const {
    if (kind == CodeKind::e4m3) return 448;
    if (kind == CodeKind::ternary || kind == CodeKind::dynamic) return 1;
    return kind == CodeKind::e5m2 ? 57344.0f : static_cast<float>(last_level());
  }
};

struct BlockScale {
  float scale;
  float below;   // of two_means
  float factor;  // of levels, ternary and 8-bit floats
};

// As BlockMeasure and the functions of these names of src/kernels/coded_block.hpp.
struct BlockMeasure {
  float mean;
  float below;
  float mean_square;
};

inline constexpr float greatest_float = 0x1.fffffep127f;

PITH_DEVICE float square_factor(std::uint32_t largest) {
  const float factor = 1 / bits_as<float>(largest);
  return factor <= greatest_float ? factor : 0;
}

PITH_DEVICE BlockScale scale_of(const CodeForm& form, std::uint32_t largest,
                                const BlockMeasure& measure) {
  const auto nan = bits_as<float>(std::uint32_t{0x7fffffff});
  if (largest >= float_infinity) return {nan, nan, 0};
  if (form.has_means()) return {measure.mean, measure.below, 0};
  if (form.kind == CodeKind::powers) {
    const std::uint32_t exponent = smaller((largest >> 23) + 1, std::uint32_t{254});
    return {bits_as<float>(exponent << 23), 0, 0};
  }
  if (form.kind == CodeKind::f16) {
    const std::uint32_t exponent = larger(largest >> 23, std::uint32_t{16}) - 15;
    return {bits_as<float>(exponent << 23), 0, bits_as<float>((254 - exponent) << 23)};
  }
  const float last = form.last_value();
  float most = bits_as<float>(largest);
  if (form.clip > 0) most *= smaller(form.clip * square_root(measure.mean_square), 1.0f);
  if (form.kind == CodeKind::ternary) most = smaller(most * form.sparsity, greatest_float);
  const float factor = last / most;
  if (magnitude_of(factor) >= float_infinity) return {0, 0, 0};
  return {most / last, 0, factor};
}

// As DynamicMap of src/kernels/coded/dynamic_map.hpp, computed: threads that look up different
// numbers would wait for each other.
struct DynamicNumbers {
  static constexpr int zero = 127;
  static constexpr int last = 128;

  PITH_DEVICE static float magnitude(int k) {
    constexpr float tops[] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1};
    if (k == 0 || k == last) return k == 0 ? 0.0f : 1.0f;
    int decade = 0;
    while (k >> (decade + 1) != 0) ++decade;
    const int parts = 1 << decade;
    const float centre = static_cast<float>(2 * (k - parts) + 1) / static_cast<float>(2 * parts);
    return tops[decade] * (0.1f + 0.9f * centre);
  }
  PITH_DEVICE static float number(std::uint32_t code) {
    const int place = static_cast<int>(code) - zero;
    return place < 0 ? -magnitude(-place) : magnitude(place);
  }
  PITH_DEVICE static std::uint32_t code_of(float scaled) {
    const float size = scaled < 0 ? -scaled : scaled;
    int k = 0;
    for (int bit = last; bit > 0; bit /= 2) {
      const int next = k + bit;
      if (next > last) continue;
      if (magnitude(next) - size <= size - magnitude(next - 1)) k = next;
    }
    return static_cast<std::uint32_t>(scaled < 0 ? zero - smaller(k, zero) : zero + k);
  }
};

struct EncodeValuesArgs {
  const float* in;
  std::byte* out;
  std::size_t count;
  std::uint64_t key;
  CodeForm form;
  float scale;
  std::uint32_t first;
};

struct EncodeValues {
  using Args = EncodeValuesArgs;
  static constexpr unsigned threads = 256;
  // As in src/kernels/coded_block.hpp.
  static constexpr unsigned block_sums = 32;
  static constexpr float summed_part = 1.0f / 4096;
  struct Shared {
    std::uint32_t largest[threads];
    float sums[block_sums];
    unsigned below[block_sums];
  };

  PITH_DEVICE static std::uint32_t power_of(const BlockScale& block, std::uint32_t bits,
                                            std::uint32_t up) {
    const std::uint32_t top = bits_as<std::uint32_t>(block.scale) >> 23;
    const std::uint32_t exponent = smaller(((bits & 0x7fffffffu) + up) >> 23, top);
    const std::uint32_t halvings =
        exponent == 0 ? 127u : smaller(top - exponent, std::uint32_t{127});
    return halvings | bits >> 31 << 7;
  }

  // Of a value that is finite.
  PITH_DEVICE static std::uint32_t code_of(const Args& args, const BlockScale& block, float value,
                                           std::uint32_t index) {
    const CodeForm& form = args.form;
    if (form.of_signs()) {
      const std::uint32_t of_zero = index * 0x9e3779b9u + static_cast<std::uint32_t>(args.key);
      return (value == 0 ? of_zero : bits_as<std::uint32_t>(value)) >> 31;
    }
    if (form.kind == CodeKind::two_means) return value < 0 ? 1 : 0;
    const std::uint32_t drawn = form.draws ? drawn_bits(args.key, index) : 0;
    if (form.kind == CodeKind::powers) {
      return power_of(block, bits_as<std::uint32_t>(value), form.draws ? drawn >> 9 : 1u << 22);
    }
    constexpr float rounds_to_even = 0x1.8p23f;  // for magnitudes far below
    const float scaled = value * block.factor;
    if (form.kind == CodeKind::e4m3) return encode<F8e4m3>(scaled).bits;
    if (form.kind == CodeKind::e5m2) return encode<F8e5m2>(scaled).bits;
    if (form.kind == CodeKind::f16) return to_value<Half>(scaled).bits;
    if (form.kind == CodeKind::dynamic) return DynamicNumbers::code_of(scaled);
    int level = 0;
    if (form.draws) {
      const float moved = scaled + static_cast<float>(drawn >> 8) * 0x1p-24f;
      level = static_cast<int>(moved);
      if (moved < static_cast<float>(level)) --level;
    } else {
      level = static_cast<int>((scaled + rounds_to_even) - rounds_to_even);
    }
    if (form.kind == CodeKind::ternary) return static_cast<std::uint32_t>(level + 1);
    const int last = form.last_level();
    level = smaller(larger(level, -last), last);
    return static_cast<std::uint32_t>(level) & ((1u << form.bits) - 1);
  }

  template <class Block>
  PITH_KERNEL static std::uint32_t largest_of(const Block& block, const float* in, std::size_t n,
                                              Shared& shared) {
    block.each([&](unsigned thread) {
      std::uint32_t own = 0;
      for (std::size_t i = thread; i < n; i += threads) own = larger(own, magnitude_of(in[i]));
      shared.largest[thread] = own;
    });
    for (unsigned half = threads / 2; half > 0; half /= 2) {
      block.sync();
      block.each([&](unsigned thread) {
        if (thread >= half) return;
        shared.largest[thread] = larger(shared.largest[thread], shared.largest[thread + half]);
      });
    }
    block.sync();
    return shared.largest[0];
  }

  // The sum of part(value) over a block's values.
  template <class Block, class Part>
  PITH_KERNEL static float sum_of(const Block& block, const float* in, std::size_t n,
                                  Shared& shared, const Part& part) {
    block.each([&](unsigned thread) {
      if (thread >= block_sums) return;
      float sum = 0;
      for (std::size_t i = thread; i < n; i += block_sums) sum += part(in[i]);
      shared.sums[thread] = sum;
    });
    for (unsigned half = block_sums / 2; half > 0; half /= 2) {
      block.sync();
      block.each([&](unsigned thread) {
        if (thread < half) shared.sums[thread] += shared.sums[thread + half];
      });
    }
    block.sync();
    const float sum = shared.sums[0];
    block.sync();  // `shared` is used again
    return sum;
  }
  PITH_DEVICE static float mean_of(float sum, std::size_t values) {
    return values == 0 ? 0 : sum / (summed_part * static_cast<float>(values));
  }

  template <class Block>
  PITH_KERNEL static std::size_t count_below(const Block& block, const float* in, std::size_t n,
                                             Shared& shared) {
    block.each([&](unsigned thread) {
      if (thread >= block_sums) return;
      unsigned below = 0;
      for (std::size_t i = thread; i < n; i += block_sums) below += in[i] < 0 ? 1 : 0;
      shared.below[thread] = below;
    });
    block.sync();
    std::size_t below = 0;
    for (const unsigned some : shared.below) below += some;
    return below;
  }

  template <class Block>
  PITH_KERNEL static BlockMeasure measure_of(const Block& block, const Args& args, const float* in,
                                             std::size_t n, std::uint32_t largest, Shared& shared) {
    const auto sum = [&](const auto& part) { return sum_of(block, in, n, shared, part); };
    if (args.form.kind == CodeKind::mean_signs) {
      const float all = sum([](float x) { return bits_as<float>(magnitude_of(x * summed_part)); });
      return {mean_of(all, n), 0, 0};
    }
    if (args.form.kind == CodeKind::two_means) {
      const float all = sum([](float x) { return x < 0 ? 0 : x * summed_part; });
      const float all_below = sum([](float x) { return x < 0 ? x * summed_part : 0; });
      const std::size_t below = count_below(block, in, n, shared);
      return {mean_of(all, n - below), mean_of(all_below, below), 0};
    }
    if (args.form.clip > 0) {
      const float factor = square_factor(largest);
      const float all = sum([factor](float x) { return (x * factor) * (x * factor); });
      return {0, 0, all / static_cast<float>(n)};
    }
    return {args.scale, 0, 0};
  }

  template <class Block>
  PITH_KERNEL static void run(const Block& block, const Args& args, Shared& shared) {
    const CodeForm& form = args.form;
    const std::size_t blocks = (args.count + form.block - 1) / form.block;
    for (std::size_t b = block.index(); b < blocks; b += block.count()) {
      const std::size_t begin = b * form.block;
      const std::size_t n = smaller(std::size_t{form.block}, args.count - begin);
      const std::size_t units = form.code_units(n);
      const float* const in = args.in + begin;
      std::byte* const out = args.out + b * form.block_bytes();
      const std::uint32_t largest = largest_of(block, in, n, shared);
      const BlockScale scale =
          scale_of(form, largest, measure_of(block, args, in, n, largest, shared));
      const bool finite = !is_nan(scale.scale);
      block.each([&](unsigned thread) {
        const bool aligned = misalignment(out, sizeof(float)) == 0;
        if (thread == 0) store_element(out, 0, scale.scale, aligned);
        if (thread == 0 && form.kind == CodeKind::two_means) {
          store_element(out, 1, scale.below, aligned);
        }
        for (std::size_t j = thread; j < units; j += threads) {
          std::uint32_t codes = 0;
          for (unsigned k = 0; finite && k < form.per_unit(); ++k) {
            const std::size_t i = k * units + j;
            const auto index = static_cast<std::uint32_t>(args.first + begin + i);
            codes += form.put(code_of(args, scale, i < n ? in[i] : 0.0f, index), k);
          }
          form.store_unit(out + form.scale_bytes(), j, codes);
        }
      });
      block.sync();  // `shared` is used again
    }
  }
};

struct DecodeValuesArgs {
  const std::byte* in;
  std::byte* out;
  std::size_t count;
  CodeForm form;
  float divisor;
  const float* instead;  // null, or the values where the coded ones are not finite
};

template <class T>
struct DecodeValues {
  using Args = DecodeValuesArgs;
  static constexpr unsigned threads = 256;
  struct Shared {};

  PITH_DEVICE static float value_of(const CodeForm& form, const BlockScale& block,
                                    std::uint32_t code) {
    const float scale = block.scale;
    if (form.kind == CodeKind::two_means) return code != 0 ? block.below : scale;
    if (form.kind == CodeKind::ternary) {
      return static_cast<float>(static_cast<int>(code) - 1) * scale;
    }
    if (form.of_signs()) {
      return code != 0 ? -scale : scale;
    }
    if (form.kind == CodeKind::powers) {
      const float value = scale * bits_as<float>((127 - (code & 127)) << 23);
      return code >> 7 != 0 ? -value : value;
    }
    const auto byte = static_cast<std::uint8_t>(code);
    if (form.kind == CodeKind::e4m3) return decode(F8e4m3{byte}) * scale;
    if (form.kind == CodeKind::e5m2) return decode(F8e5m2{byte}) * scale;
    if (form.kind == CodeKind::f16) return decode(Half{static_cast<std::uint16_t>(code)}) * scale;
    if (form.kind == CodeKind::dynamic) return DynamicNumbers::number(code) * scale;
    const unsigned unused = 32u - form.bits;
    return static_cast<float>(static_cast<std::int32_t>(code << unused) >> unused) * scale;
  }

  template <class Block>
  PITH_KERNEL static void run(const Block& block, const Args& args, Shared&) {
    const CodeForm& form = args.form;
    const std::size_t blocks = (args.count + form.block - 1) / form.block;
    const bool aligned = misalignment(args.out, sizeof(T)) == 0;
    for (std::size_t b = block.index(); b < blocks; b += block.count()) {
      const std::size_t begin = b * form.block;
      const std::size_t n = smaller(std::size_t{form.block}, args.count - begin);
      const std::size_t units = form.code_units(n);
      const std::byte* const in = args.in + b * form.block_bytes();
      const bool in_aligned = misalignment(in, sizeof(float)) == 0;
      BlockScale scale{load_element<float>(in, 0, in_aligned), 0, 0};
      if (form.kind == CodeKind::two_means) scale.below = load_element<float>(in, 1, in_aligned);
      block.each([&](unsigned thread) {
        for (std::size_t j = thread; j < units; j += threads) {
          const std::uint32_t codes = form.load_unit(in + form.scale_bytes(), j);
          for (unsigned k = 0; k < form.per_unit() && k * units + j < n; ++k) {
            const std::uint32_t code = form.get(codes, k);
            const std::size_t i = begin + k * units + j;
            float value = value_of(form, scale, code) / args.divisor;
            if (args.instead && magnitude_of(value) >= float_infinity) {
              value = args.instead[i] / args.divisor;
            }
            store_element(args.out, i, narrow<T>(value), aligned);
          }
        }
      });
    }
  }
};

}  // namespace pith::cuda
