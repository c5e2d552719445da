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

using Kind = Coding::Kind;
using CodeBytes = hn::Rebind<std::uint8_t, Words>;

constexpr std::size_t padded_block = Coding::most_block + 8 * Coding::granule;

template <Kind kKind>
using Float8 = std::conditional_t<kKind == Kind::e4m3, Float8e4m3, Float8e5m2>;
template <Kind kKind>
inline constexpr bool is_float8 = kKind == Kind::e4m3 || kKind == Kind::e5m2;

// One coding at compile time: the arithmetic on a vector of values or codes.
template <Kind kKind, unsigned kBits, bool kDraws>
struct Coder {
  static constexpr std::size_t per_byte = 8 / kBits;

  BlockScale block;
  std::uint64_t key = 0;

  // For the values from `index` on; `spread` is each lane's number times DrawHash::spread.
  HWY_INLINE Word drawn(std::uint32_t index, Word spread) const {
    const Word high = constant(static_cast<std::uint32_t>(key >> 32));
    const Word start = constant(index * DrawHash::spread + static_cast<std::uint32_t>(key));
    Word x = hn::Add(start, spread);
    x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), constant(DrawHash::first));
    x = hn::Xor(x, high);
    x = hn::Mul(hn::Xor(x, hn::ShiftRight<15>(x)), constant(DrawHash::second));
    return hn::Xor(x, hn::ShiftRight<16>(x));
  }

  // In the low bits of each word; as for drawn().
  HWY_INLINE Word code_of(Float value, std::uint32_t index, Word spread) const {
    if constexpr (is_of_signs(kKind)) {
      const Word start = constant(index * DrawHash::spread + static_cast<std::uint32_t>(key));
      const auto is_zero = hn::RebindMask(Words(), hn::Eq(value, hn::Zero(Floats())));
      return hn::ShiftRight<31>(select(is_zero, hn::Add(start, spread), as_word(value)));
    } else if constexpr (kKind == Kind::powers) {
      const Word up = kDraws ? hn::ShiftRight<9>(drawn(index, spread)) : constant(1u << 22);
      const Word bits = as_word(value);
      const Word top = constant(std::bit_cast<std::uint32_t>(block.scale) >> 23);
      const Word rounded = hn::Add(hn::And(bits, constant(0x7fffffffu)), up);
      const Word exponent = hn::Min(hn::ShiftRight<23>(rounded), top);
      const Word halvings = hn::Min(hn::Sub(top, exponent), constant(127));
      const auto is_zero = hn::Eq(exponent, hn::Zero(Words()));
      const Word sign = hn::ShiftLeft<7>(hn::ShiftRight<31>(bits));
      return hn::Or(select(is_zero, constant(127), halvings), sign);
    } else if constexpr (is_float8<kKind>) {
      return encode<Float8<kKind> >(hn::Mul(value, hn::Set(Floats(), block.factor)));
    } else {
      const Float scaled = hn::Mul(value, hn::Set(Floats(), block.factor));
      Integer level;
      if constexpr (kDraws) {
        const auto random = hn::BitCast(Integers(), hn::ShiftRight<8>(drawn(index, spread)));
        const Float part = hn::Mul(hn::ConvertTo(Floats(), random), hn::Set(Floats(), 0x1p-24f));
        level = hn::ConvertTo(Integers(), hn::Floor(hn::Add(scaled, part)));
      } else {
        level = hn::NearestInt(scaled);
      }
      const Integer last = hn::Set(Integers(), last_level(kBits));
      const Integer clipped = hn::Min(hn::Max(level, hn::Neg(last)), last);
      return hn::And(hn::BitCast(Words(), clipped), constant((1u << kBits) - 1));
    }
  }

  // Bits of `code` above its own are ignored.
  static HWY_INLINE Float value_of(Word code, Float scale) {
    if constexpr (is_of_signs(kKind)) {
      return as_float(hn::Xor(as_word(scale), hn::ShiftLeft<31>(code)));
    } else if constexpr (kKind == Kind::powers) {
      const Word halvings = hn::And(code, constant(127));
      const Float power = as_float(hn::ShiftLeft<23>(hn::Sub(constant(127), halvings)));
      const Word sign = hn::ShiftLeft<31>(hn::ShiftRight<7>(code));
      return as_float(hn::Xor(as_word(hn::Mul(scale, power)), sign));
    } else if constexpr (is_float8<kKind>) {
      return hn::Mul(decode<Float8<kKind> >(hn::ShiftLeft<24>(code)), scale);
    } else {
      constexpr int unused = 32 - static_cast<int>(kBits);
      const Integer top = hn::BitCast(Integers(), hn::ShiftLeft<unused>(code));
      return hn::Mul(hn::ConvertTo(Floats(), hn::ShiftRight<unused>(top)), scale);
    }
  }
};

// Of whole vectors.
HWY_INLINE std::uint32_t largest_of(const float* values, std::size_t n) {
  const std::size_t lanes = hn::Lanes(Floats());
  Integer largest = hn::Zero(Integers());
  for (std::size_t i = 0; i < n; i += lanes) {
    largest = hn::Max(largest, magnitude(hn::LoadU(Floats(), values + i)));
  }
  return static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(Integers(), largest)));
}

// Of whole vectors; `n` of the values count.
HWY_INLINE float mean_magnitude(const float* values, std::size_t whole, std::size_t n) {
  const std::size_t lanes = hn::Lanes(Floats());
  const Float small = hn::Set(Floats(), magnitude_part);
  std::array<float, magnitude_sums> sums{};
  for (std::size_t part = 0; part < magnitude_sums; part += lanes) {
    Float sum = hn::Zero(Floats());
    for (std::size_t i = part; i < whole; i += magnitude_sums) {
      const Float part_of_it = hn::Mul(hn::LoadU(Floats(), values + i), small);
      sum = hn::Add(sum, hn::Abs(part_of_it));
    }
    hn::StoreU(sum, Floats(), sums.data() + part);
  }
  return mean_of(sums, n);
}

// Codes a block of n values, which with zeros behind them fill `bytes` bytes of codes.
template <Kind kKind, unsigned kBits, bool kDraws>
HWY_INLINE void encode_block(const Coding& coding, const CodingInput& input, const float* values,
                             std::size_t n, std::size_t bytes, std::byte* out) {
  using Code = Coder<kKind, kBits, kDraws>;
  const std::size_t whole = bytes * Code::per_byte;
  Code coder;
  coder.key = input.key;
  float given = input.scale;
  if constexpr (kKind == Kind::mean_signs) given = mean_magnitude(values, whole, n);
  coder.block = scale_of(coding, largest_of(values, whole), given);
  std::memcpy(out, &coder.block.scale, sizeof(float));
  out += sizeof(float);
  if (std::isnan(coder.block.scale)) {
    std::memset(out, 0, bytes);
    return;
  }
  const std::size_t lanes = hn::Lanes(Floats());
  const Word spread = hn::Mul(hn::Iota(Words(), 0), constant(DrawHash::spread));
  for (std::size_t j = 0; j < bytes; j += lanes) {
    Word packed = hn::Zero(Words());
    unrolled<Code::per_byte>([&](auto k) HWY_ATTR {
      const std::size_t i = k.value * bytes + j;
      const Word code = coder.code_of(hn::LoadU(Floats(), values + i),
                                      input.first + static_cast<std::uint32_t>(i), spread);
      packed = hn::Or(packed, hn::ShiftLeft<static_cast<int>(k.value * kBits)>(code));
    });
    const auto narrow_codes = hn::DemoteTo(CodeBytes(), hn::BitCast(Integers(), packed));
    store_at(CodeBytes(), narrow_codes, out, j);
  }
}

// Calls put(i, values) for the vectors of a block, in order: bytes are read again for each of their
// codes, since stores to several places in turn took twice as long [Zen 4, 256 MiB].
template <Kind kKind, unsigned kBits, class Put>
HWY_INLINE void decode_block(const std::byte* in, std::size_t bytes, const Put& put) {
  using Code = Coder<kKind, kBits, false>;
  float first = 0;
  std::memcpy(&first, in, sizeof first);
  const Float scale = hn::Set(Floats(), first);
  in += sizeof(float);
  const std::size_t lanes = hn::Lanes(Floats());
  unrolled<Code::per_byte>([&](auto k) HWY_ATTR {
    for (std::size_t j = 0; j < bytes; j += lanes) {
      const Word packed = hn::PromoteTo(Words(), load_at(CodeBytes(), in, j));
      const Word code = hn::ShiftRight<static_cast<int>(k.value * kBits)>(packed);
      put(k.value * bytes + j, Code::value_of(code, scale));
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
    const std::size_t bytes = args.coding.code_bytes(n);
    const std::size_t whole = bytes * 8 / kBits;
    const float* values = args.in + begin;
    if (n < whole) {
      std::memcpy(padded, values, n * sizeof(float));
      std::memset(padded + n, 0, (whole - n) * sizeof(float));
      values = padded;
    }
    encode_block<kKind, kBits, kDraws>(args.coding, input_at(args.input, begin), values, n, bytes,
                                       out);
    out += sizeof(float) + bytes;
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
    const std::size_t bytes = args.coding.code_bytes(n);
    std::byte* out = args.out + begin * size_of(args.type);
    const bool direct = args.type == DType::f32 && n == bytes * 8 / kBits && !args.instead;
    std::byte* const to = direct ? out : decoded;
    decode_block<kKind, kBits>(in, bytes, [&](std::size_t i, Float value) HWY_ATTR {
      store_at(Floats(), divides ? hn::Div(value, divisor) : value, to, i);
    });
    in += sizeof(float) + bytes;
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
    const std::size_t bytes = args.coding.code_bytes(n);
    if (is_marked(args, at)) {
      mark(args.coding, n, args.out + at);
      at += sizeof(float) + bytes;
      return;
    }
    const std::size_t first = args.own ? args.own_rank : 0;
    if (args.own) {
      std::memcpy(sums, args.own + begin, n * sizeof(float));
    } else {
      decode_block<kKind, kBits>(args.in[0] + at, bytes, [&](std::size_t i, Float value) HWY_ATTR {
        hn::StoreU(value, Floats(), sums + i);
      });
    }
    for (std::size_t k = 0; k < args.n; ++k) {
      if (k == first) continue;
      decode_block<kKind, kBits>(args.in[k] + at, bytes, [&](std::size_t i, Float value) HWY_ATTR {
        hn::StoreU(hn::Add(hn::LoadU(Floats(), sums + i), value), Floats(), sums + i);
      });
    }
    std::fill(sums + n, sums + bytes * 8 / kBits, 0.0f);
    encode_block<kKind, kBits, kDraws>(args.coding, input_at(args.input, begin), sums, n, bytes,
                                       args.out + at);
    if (args.own) {
      decode_block<kKind, kBits>(args.out + at, bytes, [&](std::size_t i, Float value) HWY_ATTR {
        hn::StoreU(value, Floats(), decoded + i);
      });
      change_own(args.own + begin, sums, decoded, n, args.change + begin);
    }
    at += sizeof(float) + bytes;
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
  if (coding.kind == Kind::e4m3) return body(Form<Kind::e4m3, 8>());
  if (coding.kind == Kind::e5m2) return body(Form<Kind::e5m2, 8>());
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
