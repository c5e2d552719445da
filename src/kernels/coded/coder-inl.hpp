// The arithmetic of codings on vectors of values or codes; included once per SIMD target.
#if defined(PITH_KERNELS_CODER_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef PITH_KERNELS_CODER_INL
#undef PITH_KERNELS_CODER_INL
#else
#define PITH_KERNELS_CODER_INL
#endif

#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/coded/dynamic_map.hpp"
#include "kernels/coded_block.hpp"
#include "kernels/values-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace pith::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && !HWY_HAVE_SCALABLE

using Kind = Coding::Kind;
using CodeBytes = hn::Rebind<std::uint8_t, Words>;

template <Kind kKind>
using Float8 = std::conditional_t<kKind == Kind::e4m3, Float8e4m3, Float8e5m2>;
template <Kind kKind>
inline constexpr bool is_float8 = kKind == Kind::e4m3 || kKind == Kind::e5m2;

// One coding at compile time: the arithmetic on a vector of values or codes.
template <Kind kKind, unsigned kBits, bool kDraws>
struct Coder {
  static constexpr std::size_t per_unit = kKind == Kind::ternary ? 5 : kBits > 8 ? 1 : 8 / kBits;
  static constexpr std::size_t scale_bytes =
      kKind == Kind::two_means ? 2 * sizeof(float) : sizeof(float);

  BlockScale block;
  std::uint64_t key = 0;

  // `start`: see starts_at().
  HWY_INLINE Word drawn(Word start) const {
    const Word high = constant(static_cast<std::uint32_t>(key >> 32));
    Word x = hn::Mul(hn::Xor(start, hn::ShiftRight<16>(start)), constant(DrawHash::first));
    x = hn::Xor(x, high);
    x = hn::Mul(hn::Xor(x, hn::ShiftRight<15>(x)), constant(DrawHash::second));
    return hn::Xor(x, hn::ShiftRight<16>(x));
  }

  // What is drawn for the values from `index` on begins with these. `spread` is each lane's number
  // times DrawHash::spread.
  HWY_INLINE Word starts_at(std::uint32_t index, Word spread) const {
    return hn::Add(constant(index * DrawHash::spread + static_cast<std::uint32_t>(key)), spread);
  }

  // A level, its signed integer's low bits shifted by kShift.
  template <int kShift>
  HWY_INLINE Word level_of(Float value, Word start) const {
    const Float scaled = hn::Mul(value, hn::Set(Floats(), block.factor));
    Integer level;
    if constexpr (kDraws) {
      const auto random = hn::BitCast(Integers(), hn::ShiftRight<8>(drawn(start)));
      // The product is exact, so that it is all the same whether the addition is fused with it.
      const Float moved =
          hn::MulAdd(hn::ConvertTo(Floats(), random), hn::Set(Floats(), 0x1p-24f), scaled);
      if constexpr (kBits == 2) {
        const auto up = hn::RebindMask(Words(), hn::Ge(moved, hn::Set(Floats(), 1)));
        const auto down = hn::RebindMask(Words(), hn::Lt(moved, hn::Zero(Floats())));
        return hn::Or(hn::IfThenElseZero(up, constant(1u << kShift)),
                      hn::IfThenElseZero(down, constant(3u << kShift)));
      }
      level = hn::ConvertTo(Integers(), hn::Floor(moved));
    } else {
      level = hn::NearestInt(scaled);
    }
    const Integer last = hn::Set(Integers(), last_level(kBits));
    const Integer clipped = hn::Min(hn::Max(level, hn::Neg(last)), last);
    const Word code = hn::And(hn::BitCast(Words(), clipped), constant((1u << kBits) - 1));
    return hn::ShiftLeft<kShift>(code);
  }

  // Magnitude k of the map, as DynamicMap::magnitude computes it.
  static HWY_INLINE Float dynamic_magnitude(Integer k) {
    const Integer odd = hn::Add(hn::Add(k, k), hn::Set(Integers(), 1));
    const Word bits = as_word(hn::ConvertTo(Floats(), odd));
    // One less than the exponent is the decade; zero and one belong to none.
    const Word decade = hn::And(hn::Sub(hn::ShiftRight<23>(bits), constant(128)), constant(7));
    const Word digits = hn::And(bits, constant(0x007fffffu));
    const Float one = hn::Set(Floats(), 1);
    const Float centre = hn::Sub(as_float(hn::Or(digits, as_word(one))), one);
    const Float part = hn::Mul(hn::Set(Floats(), DynamicMap::range), centre);
    const Float sum = hn::Add(hn::Set(Floats(), DynamicMap::begin), part);
    const auto is_last = hn::Eq(k, hn::Set(Integers(), DynamicMap::last));
    const Float found = hn::Mul(top_of(decade), sum);
    return hn::IfThenElse(hn::RebindMask(Floats(), is_last), one, found);
  }
  static HWY_INLINE Float top_of(Word decade) {
    const float* const tops = DynamicMap::tops.data();
    if constexpr (hn::MaxLanes(Floats()) >= 8) {
      const Float all = hn::LoadU(Floats(), tops);
      return hn::TableLookupLanes(all, hn::IndicesFromVec(Floats(), decade));
    } else {
      return hn::GatherIndex(Floats(), tops, hn::BitCast(Integers(), decade));
    }
  }

  // Arithmetic finds two neighbours of which one is the nearest; distances say which.
  HWY_INLINE Word dynamic_code_of(Float value) const {
    const Float scaled = hn::Mul(value, hn::Set(Floats(), block.factor));
    const Float size = hn::Abs(scaled);
    // Of the decade: its parts in a unit, and its first magnitude.
    Float parts = hn::Set(Floats(), 1 / (DynamicMap::range * DynamicMap::tops[0]));
    Float first = hn::Set(Floats(), 1);
    unrolled<DynamicMap::decades - 1>([&](auto k) HWY_ATTR {
      constexpr int decade = static_cast<int>(k.value) + 1;
      constexpr float begin = 1 << decade;
      constexpr float width = DynamicMap::range * DynamicMap::tops[decade];
      constexpr float bound = DynamicMap::first_bound(decade);
      const auto is_above = hn::Ge(size, hn::Set(Floats(), bound));
      parts = hn::IfThenElse(is_above, hn::Set(Floats(), begin / width), parts);
      first = hn::IfThenElse(is_above, hn::Set(Floats(), begin), first);
    });
    constexpr float offset = 1 - DynamicMap::begin / DynamicMap::range;
    const Float at = hn::MulAdd(size, parts, hn::Mul(first, hn::Set(Floats(), offset)));
    const Float limited = hn::Min(hn::Max(at, first), hn::Add(first, first));
    const Integer upper = hn::NearestInt(limited);
    const Integer lower = hn::Sub(upper, hn::Set(Integers(), 1));
    const Float to_upper = hn::Sub(dynamic_magnitude(upper), size);
    const Float to_lower = hn::Sub(size, dynamic_magnitude(lower));
    const auto takes_upper = hn::RebindMask(Integers(), hn::Le(to_upper, to_lower));
    const Integer k = hn::IfThenElse(takes_upper, upper, lower);
    const Integer zero = hn::Set(Integers(), DynamicMap::zero);
    const Integer negative = hn::Min(k, hn::Set(Integers(), DynamicMap::most_negative));
    const auto is_negative = hn::RebindMask(Integers(), hn::Lt(scaled, hn::Zero(Floats())));
    const Integer code = hn::IfThenElse(is_negative, hn::Sub(zero, negative), hn::Add(zero, k));
    return hn::BitCast(Words(), code);
  }

  // The values' codes, shifted by kShift.
  template <int kShift>
  HWY_INLINE Word code_of(Float value, Word start) const {
    if constexpr (is_of_signs(kKind)) {
      const auto is_zero = hn::RebindMask(Words(), hn::Eq(value, hn::Zero(Floats())));
      return hn::ShiftLeft<kShift>(hn::ShiftRight<31>(select(is_zero, start, as_word(value))));
    } else if constexpr (kKind == Kind::two_means) {
      const auto is_below = hn::RebindMask(Words(), hn::Lt(value, hn::Zero(Floats())));
      return hn::IfThenElseZero(is_below, constant(1u << kShift));
    } else if constexpr (kKind == Kind::powers) {
      const Word up = kDraws ? hn::ShiftRight<9>(drawn(start)) : constant(1u << 22);
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
    } else if constexpr (kKind == Kind::dynamic) {
      return dynamic_code_of(value);
    } else {
      return level_of<kShift>(value, start);
    }
  }

  // The codes of the values at `values`, `apart` further on, and so on: a byte in each word.
  HWY_INLINE Word packed(const float* values, std::size_t apart, Word start) const {
    if constexpr (kKind == Kind::ternary) {
      const Float factor = hn::Set(Floats(), block.factor);
      Float sum = hn::Zero(Floats());
      unrolled<per_unit>([&](auto k) HWY_ATTR {
        const Float digit =
            hn::Round(hn::Mul(hn::LoadU(Floats(), values + k.value * apart), factor));
        sum = hn::MulAdd(digit, hn::Set(Floats(), float(ternary_places[k.value])), sum);
      });
      const Integer codes = hn::ConvertTo(Integers(), sum);
      return hn::Add(hn::BitCast(Words(), codes), constant(ternary_zeros));
    } else {
      Word all = hn::Zero(Words());
      unrolled<per_unit>([&](auto k) HWY_ATTR {
        const auto apart_words = static_cast<std::uint32_t>(k.value * apart);
        const Word own = hn::Add(start, constant(apart_words * DrawHash::spread));
        const Float value = hn::LoadU(Floats(), values + k.value * apart);
        all = hn::Or(all, code_of<static_cast<int>(k.value * kBits)>(value, own));
      });
      return all;
    }
  }

  // The codes in place k of bytes; bits above their own may be set.
  template <std::size_t k>
  static HWY_INLINE Word codes_in(Word bytes) {
    if constexpr (kKind == Kind::ternary) {
      // The fraction of byte / 3^(k + 1), times three: exact for all bytes, with 16 bits.
      constexpr std::uint32_t power = 3 * ternary_places[k];
      const hn::Repartition<std::uint16_t, Words> halves;
      constexpr std::uint32_t inverse = 65535 / power + 1;
      const auto fraction =
          hn::Mul(hn::BitCast(halves, bytes), hn::BitCast(halves, constant(inverse)));
      return hn::BitCast(Words(), hn::MulHigh(fraction, hn::BitCast(halves, constant(3))));
    } else {
      return hn::ShiftRight<static_cast<int>(k * kBits)>(bytes);
    }
  }

  // Bits of `code` above its own are ignored.
  static HWY_INLINE Float value_of(Word code, Float scale, Float below) {
    if constexpr (is_of_signs(kKind)) {
      return as_float(hn::Xor(as_word(scale), hn::ShiftLeft<31>(code)));
    } else if constexpr (kKind == Kind::two_means) {
      const auto is_below = hn::TestBit(code, constant(1));
      return hn::IfThenElse(hn::RebindMask(Floats(), is_below), below, scale);
    } else if constexpr (kKind == Kind::ternary) {
      const Integer digit = hn::Sub(hn::BitCast(Integers(), code), hn::Set(Integers(), 1));
      return hn::Mul(hn::ConvertTo(Floats(), digit), scale);
    } else if constexpr (kKind == Kind::powers) {
      const Word halvings = hn::And(code, constant(127));
      const Float power = as_float(hn::ShiftLeft<23>(hn::Sub(constant(127), halvings)));
      const Word sign = hn::ShiftLeft<31>(hn::ShiftRight<7>(code));
      return as_float(hn::Xor(as_word(hn::Mul(scale, power)), sign));
    } else if constexpr (is_float8<kKind>) {
      return hn::Mul(decode<Float8<kKind> >(hn::ShiftLeft<24>(code)), scale);
    } else if constexpr (kKind == Kind::dynamic) {
      const Integer zero = hn::Set(Integers(), DynamicMap::zero);
      const Integer place = hn::Sub(hn::BitCast(Integers(), code), zero);
      const Float size = dynamic_magnitude(hn::Abs(place));
      const Word sign = hn::And(hn::BitCast(Words(), place), constant(0x80000000u));
      return hn::Mul(as_float(hn::Xor(as_word(size), sign)), scale);
    } else {
      constexpr int unused = 32 - static_cast<int>(kBits);
      const Integer top = hn::BitCast(Integers(), hn::ShiftLeft<unused>(code));
      return hn::Mul(hn::ConvertTo(Floats(), hn::ShiftRight<unused>(top)), scale);
    }
  }

  // Writes unit j of the block at `values`, and those next to it: as many as a vector has lanes.
  HWY_INLINE void put_units(const float* values, std::size_t units, std::size_t j, Word start,
                            std::byte* out) const {
    if constexpr (kKind == Kind::f16) {
      const Float scaled =
          hn::Mul(hn::LoadU(Floats(), values + j), hn::Set(Floats(), block.factor));
      store_at(Codes<Float16>(), narrow<Float16>(clip(scaled, largest_f16)), out, j);
    } else {
      const Word codes = packed(values + j, units, start);
      store_at(CodeBytes(), hn::DemoteTo(CodeBytes(), hn::BitCast(Integers(), codes)), out, j);
    }
  }
  // The values in place k of unit j, and of those next to it.
  template <std::size_t k>
  static HWY_INLINE Float get_values(const std::byte* in, std::size_t j, Float scale, Float below) {
    if constexpr (kKind == Kind::f16) {
      return hn::Mul(widen<Float16>(load_at(Codes<Float16>(), in, j)), scale);
    } else {
      const Word bytes = hn::PromoteTo(Words(), load_at(CodeBytes(), in, j));
      return value_of(codes_in<k>(bytes), scale, below);
    }
  }
};

#endif
}  // namespace pith::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
