// Values coded in blocks: encoding, decoding and sums. A vector of neighbouring values becomes a
// vector of neighbouring bytes, so that no lanes are crossed.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/coded_values.cpp"
#include "kernels/coded_values.hpp"

#include <array>
#include <cmath>
#include <cstring>

#include "hwy/foreach_target.h"
// Highway requires this order of includes.
#include "hwy/highway.h"
#include "kernels/cast.hpp"
#include "kernels/coded/coder-inl.hpp"
#include "kernels/coded_block.hpp"
#include "kernels/sparse.hpp"
#include "kernels/values-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace pith::kernels::HWY_NAMESPACE {
// Bytes of codes are a multiple of 16, so that vectors of up to 16 lanes leave no rest.
#if HWY_TARGET == HWY_SCALAR || HWY_HAVE_SCALABLE

void encode_values_of(const EncodeValuesKernel::Args& args) { scalar::encode_values(args); }
void decode_values_of(const DecodeValuesKernel::Args& args) { scalar::decode_values(args); }
void sum_coded_of(const SumCodedKernel::Args& args) { scalar::sum_coded(args); }

#else

constexpr std::size_t padded_block = Coding::most_block + 8 * Coding::granule;

// Of whole vectors.
HWY_INLINE std::uint32_t largest_of(const float* values, std::size_t n) {
  const std::size_t lanes = hn::Lanes(Floats());
  Integer largest = hn::Zero(Integers());
  for (std::size_t i = 0; i < n; i += lanes) {
    largest = hn::Max(largest, magnitude(hn::LoadU(Floats(), values + i)));
  }
  return static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(Integers(), largest)));
}

// A block's sums, as vectors.
class VectorSums {
 public:
  static constexpr std::size_t vectors = block_sums / hn::MaxLanes(Floats());

  // Vectors are not zero by themselves on every target: Highway's for NEON have a constructor.
  HWY_INLINE VectorSums() {
    for (Float& sum : sums_) sum = hn::Zero(Floats());
  }
  template <std::size_t k>
  HWY_INLINE void add(Float part) {
    sums_[k] = hn::Add(sums_[k], part);
  }
  // In the order of sum_of().
  HWY_INLINE float sum() {
    fold<vectors / 2>();
    return sum_of_lanes(Floats(), sums_[0]);
  }

 private:
  template <std::size_t half>
  HWY_INLINE void fold() {
    if constexpr (half > 0) {
      unrolled<half>([&](auto k) HWY_ATTR { add<k.value>(sums_[k.value + half]); });
      fold<half / 2>();
    }
  }
  template <class D>
  static HWY_INLINE float sum_of_lanes(D, hn::Vec<D> v) {
    if constexpr (hn::MaxLanes(D()) == 1) {
      return hn::GetLane(v);
    } else {
      const hn::Half<D> half;
      return sum_of_lanes(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
    }
  }

  Float sums_[vectors];
};

// Calls body(k, vector) for the vectors of values; their parts belong to vector k of sums.
template <class Body>
HWY_INLINE void for_each_vector(const float* values, std::size_t whole, const Body& body) {
  const std::size_t lanes = hn::Lanes(Floats());
  std::size_t i = 0;
  for (; i + block_sums <= whole; i += block_sums) {
    unrolled<VectorSums::vectors>(
        [&](auto k) HWY_ATTR { body(k, hn::LoadU(Floats(), values + i + k.value * lanes)); });
  }
  unrolled<VectorSums::vectors>([&](auto k) HWY_ATTR {
    const std::size_t at = i + k.value * lanes;
    if (at < whole) body(k, hn::LoadU(Floats(), values + at));
  });
}

// Of whole vectors, as the next two; `n` of the values count.
HWY_INLINE BlockMeasure mean_magnitude(const float* values, std::size_t whole, std::size_t n) {
  const Float small = hn::Set(Floats(), summed_part);
  VectorSums sums;
  for_each_vector(values, whole, [&](auto k, Float value) HWY_ATTR {
    sums.add<k.value>(hn::Abs(hn::Mul(value, small)));
  });
  return {mean_of(sums.sum(), n)};
}

HWY_INLINE BlockMeasure two_means(const float* values, std::size_t whole, std::size_t n) {
  const Float small = hn::Set(Floats(), summed_part);
  const Word one = constant(1);
  VectorSums sums, sums_below;
  Word below = hn::Zero(Words());
  for_each_vector(values, whole, [&](auto k, Float value) HWY_ATTR {
    const auto is_below = hn::Lt(value, hn::Zero(Floats()));
    const Float part = hn::Mul(value, small);
    sums.add<k.value>(hn::IfThenZeroElse(is_below, part));
    sums_below.add<k.value>(hn::IfThenElseZero(is_below, part));
    below = hn::Add(below, hn::IfThenElseZero(hn::RebindMask(Words(), is_below), one));
  });
  const std::size_t counted = hn::GetLane(hn::SumOfLanes(Words(), below));
  return {mean_of(sums.sum(), n - counted), mean_of(sums_below.sum(), counted)};
}

HWY_INLINE BlockMeasure mean_square(const float* values, std::size_t whole, std::size_t n,
                                    std::uint32_t largest) {
  const Float factor = hn::Set(Floats(), square_factor(largest));
  VectorSums sums;
  for_each_vector(values, whole, [&](auto k, Float value) HWY_ATTR {
    const Float part = hn::Mul(value, factor);
    sums.add<k.value>(hn::Mul(part, part));
  });
  return {0, 0, sums.sum() / static_cast<float>(n)};
}

template <Kind kKind>
HWY_INLINE BlockMeasure measure_of(const Coding& coding, const CodingInput& input,
                                   const float* values, std::size_t whole, std::size_t n,
                                   std::uint32_t largest) {
  if constexpr (kKind == Kind::mean_signs) return mean_magnitude(values, whole, n);
  if constexpr (kKind == Kind::two_means) return two_means(values, whole, n);
  if (kKind == Kind::levels && coding.clip > 0) return mean_square(values, whole, n, largest);
  return {input.scale};
}

// Codes a block of n values, which with zeros behind them fill `units` units of codes.
template <Kind kKind, unsigned kBits, bool kDraws>
HWY_INLINE void encode_block(const Coding& coding, const CodingInput& input, const float* values,
                             std::size_t n, std::size_t units, std::byte* out) {
  using Code = Coder<kKind, kBits, kDraws>;
  const std::size_t whole = units * Code::per_unit;
  const std::uint32_t largest = largest_of(values, whole);
  const BlockScale block =
      scale_of(coding, largest, measure_of<kKind>(coding, input, values, whole, n, largest));
  write_scales(coding, block, out);
  out += Code::scale_bytes;
  if (std::isnan(block.scale)) {
    std::memset(out, 0, units * coding.unit_bytes());
    return;
  }
  const Code coder{block, input.key};
  const std::size_t lanes = hn::Lanes(Floats());
  const Word spread = hn::Mul(hn::Iota(Words(), 0), constant(DrawHash::spread));
  for (std::size_t j = 0; j < units; j += lanes) {
    const Word start = coder.starts_at(input.first + static_cast<std::uint32_t>(j), spread);
    coder.put_units(values, units, j, start, out);
  }
}

// Calls put(i, values) for the vectors of a block, in order: units are read again for each of their
// codes, since stores to several places in turn took twice as long [Zen 4, 256 MiB].
template <Kind kKind, unsigned kBits, class Put>
HWY_INLINE void decode_block(const Coding& coding, const std::byte* in, std::size_t units,
                             const Put& put) {
  using Code = Coder<kKind, kBits, false>;
  const BlockScale block = read_scales(coding, in);
  const Float scale = hn::Set(Floats(), block.scale);
  const Float below = hn::Set(Floats(), block.below);
  in += Code::scale_bytes;
  const std::size_t lanes = hn::Lanes(Floats());
  unrolled<Code::per_unit>([&](auto k) HWY_ATTR {
    for (std::size_t j = 0; j < units; j += lanes) {
      put(k.value * units + j, Code::template get_values<k.value>(in, j, scale, below));
    }
  });
}

// Calls body(begin, n) for the blocks of a vector.
template <class Body>
HWY_INLINE void for_each_block(const Coding& coding, std::size_t count, const Body& body) {
  for (std::size_t begin = 0; begin < count; begin += coding.block) {
    body(begin, std::min<std::size_t>(coding.block, count - begin));
  }
}

HWY_INLINE CodingInput input_at(const CodingInput& input, std::size_t begin) {
  return {input.scale, input.key, input.first + static_cast<std::uint32_t>(begin)};
}

template <Kind kKind, unsigned kBits, bool kDraws>
void encode_as(const EncodeValuesKernel::Args& args) {
  HWY_ALIGN float padded[padded_block];
  std::byte* out = args.out;
  for_each_block(args.coding, args.count, [&](std::size_t begin, std::size_t n) HWY_ATTR {
    const std::size_t units = args.coding.code_units(n);
    const std::size_t whole = units * args.coding.codes_per_unit();
    const float* values = args.in + begin;
    if (n < whole) {
      std::memcpy(padded, values, n * sizeof(float));
      std::memset(padded + n, 0, (whole - n) * sizeof(float));
      values = padded;
    }
    encode_block<kKind, kBits, kDraws>(args.coding, input_at(args.input, begin), values, n, units,
                                       out);
    out += args.coding.bytes(n);
  });
}

template <Kind kKind, unsigned kBits>
void decode_as(const DecodeValuesKernel::Args& args) {
  HWY_ALIGN float padded[padded_block];
  auto* const decoded = reinterpret_cast<std::byte*>(padded);
  const std::byte* in = args.in;
  const bool divides = args.divisor != 1;
  const Float divisor = hn::Set(Floats(), args.divisor);
  for_each_block(args.coding, args.count, [&](std::size_t begin, std::size_t n) HWY_ATTR {
    const std::size_t units = args.coding.code_units(n);
    std::byte* out = args.out + begin * size_of(args.type);
    const bool direct =
        args.type == DType::f32 && n == units * args.coding.codes_per_unit() && !args.instead;
    std::byte* const to = direct ? out : decoded;
    decode_block<kKind, kBits>(args.coding, in, units, [&](std::size_t i, Float value) HWY_ATTR {
      store_at(Floats(), divides ? hn::Div(value, divisor) : value, to, i);
    });
    in += args.coding.bytes(n);
    if (direct) return;
    if (args.instead) replace_nonfinite(padded, args.instead + begin, args.divisor, n);
    if (args.type == DType::f32) {
      std::memcpy(out, padded, n * sizeof(float));
    } else {
      cast(out, args.type, decoded, DType::f32, n);
    }
  });
}

template <Kind kKind, unsigned kBits, bool kDraws>
void sum_as(const SumCodedKernel::Args& args) {
  HWY_ALIGN float sums[padded_block];
  HWY_ALIGN float decoded[padded_block];
  std::size_t at = 0;
  for_each_block(args.coding, args.count, [&](std::size_t begin, std::size_t n) HWY_ATTR {
    const std::size_t units = args.coding.code_units(n);
    if (is_marked(args, at)) {
      mark(args.coding, n, args.out + at);
      at += args.coding.bytes(n);
      return;
    }
    const std::size_t first = args.own ? args.own_rank : 0;
    if (args.own) {
      std::memcpy(sums, args.own + begin, n * sizeof(float));
    } else {
      decode_block<kKind, kBits>(args.coding, args.in[0] + at, units,
                                 [&](std::size_t i, Float value)
                                     HWY_ATTR { hn::StoreU(value, Floats(), sums + i); });
    }
    for (std::size_t k = 0; k < args.n; ++k) {
      if (k == first) continue;
      decode_block<kKind, kBits>(
          args.coding, args.in[k] + at, units, [&](std::size_t i, Float value) HWY_ATTR {
            hn::StoreU(hn::Add(hn::LoadU(Floats(), sums + i), value), Floats(), sums + i);
          });
    }
    std::fill(sums + n, sums + units * args.coding.codes_per_unit(), 0.0f);
    encode_block<kKind, kBits, kDraws>(args.coding, input_at(args.input, begin), sums, n, units,
                                       args.out + at);
    if (args.own) {
      decode_block<kKind, kBits>(args.coding, args.out + at, units,
                                 [&](std::size_t i, Float value)
                                     HWY_ATTR { hn::StoreU(value, Floats(), decoded + i); });
      change_own(args.own + begin, sums, decoded, n, args.change + begin);
    }
    at += args.coding.bytes(n);
  });
}

template <Kind kKind, unsigned kBits, bool kDraws = false>
struct Form {
  static constexpr Kind kind = kKind;
  static constexpr unsigned bits = kBits;
  static constexpr bool draws = kDraws;
};

// Calls body with the coding as a Form.
template <class Body>
HWY_INLINE void with_form(const Coding& coding, const Body& body) {
  const auto maybe_drawn = [&](auto kind, auto bits) {
    if (coding.draws) return body(Form<kind.value, bits.value, true>());
    return body(Form<kind.value, bits.value, false>());
  };
  constexpr auto levels = std::integral_constant<Kind, Kind::levels>();
  constexpr auto powers = std::integral_constant<Kind, Kind::powers>();
  constexpr auto eight = std::integral_constant<unsigned, 8>();
  if (coding.kind == Kind::signs) return body(Form<Kind::signs, 1>());
  if (coding.kind == Kind::mean_signs) return body(Form<Kind::mean_signs, 1>());
  if (coding.kind == Kind::two_means) return body(Form<Kind::two_means, 1>());
  if (coding.kind == Kind::ternary) return body(Form<Kind::ternary, 8>());
  if (coding.kind == Kind::e4m3) return body(Form<Kind::e4m3, 8>());
  if (coding.kind == Kind::e5m2) return body(Form<Kind::e5m2, 8>());
  if (coding.kind == Kind::f16) return body(Form<Kind::f16, 16>());
  if (coding.kind == Kind::dynamic) return body(Form<Kind::dynamic, 8>());
  if (coding.kind == Kind::powers) return maybe_drawn(powers, eight);
  if (coding.bits == 2) return maybe_drawn(levels, std::integral_constant<unsigned, 2>());
  if (coding.bits == 4) return maybe_drawn(levels, std::integral_constant<unsigned, 4>());
  return maybe_drawn(levels, eight);
}

void encode_values_of(const EncodeValuesKernel::Args& args) {
  with_form(args.coding, [&](auto form) { encode_as<form.kind, form.bits, form.draws>(args); });
}

void decode_values_of(const DecodeValuesKernel::Args& args) {
  with_form(args.coding, [&](auto form) { decode_as<form.kind, form.bits>(args); });
}

void sum_coded_of(const SumCodedKernel::Args& args) {
  with_form(args.coding, [&](auto form) { sum_as<form.kind, form.bits, form.draws>(args); });
}

#endif
}  // namespace pith::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pith::kernels {

HWY_EXPORT(encode_values_of);
HWY_EXPORT(decode_values_of);
HWY_EXPORT(sum_coded_of);

void encode_values(const EncodeValuesKernel::Args& args) {
  if (args.coding.kind == Coding::Kind::bf16) return convert(as_conversion(args));
  HWY_DYNAMIC_DISPATCH(encode_values_of)(args);
}
void decode_values(const DecodeValuesKernel::Args& args) {
  if (args.coding.kind == Coding::Kind::bf16) return convert(as_conversion(args));
  HWY_DYNAMIC_DISPATCH(decode_values_of)(args);
}
void sum_coded(const SumCodedKernel::Args& args) {
  if (args.coding.kind == Coding::Kind::bf16) return sum_values(as_plain_sum(args));
  HWY_DYNAMIC_DISPATCH(sum_coded_of)(args);
}

}  // namespace pith::kernels
#endif
