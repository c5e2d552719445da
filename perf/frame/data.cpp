#include "frame/data.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace pith_perf {
namespace {

constexpr std::uint64_t golden = 0x9e3779b97f4a7c15u;

std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// An element's random number.
std::uint64_t random_of(const Round& round, int rank, std::size_t index) {
  const std::uint64_t stream = mix(static_cast<std::uint64_t>(rank + 1) * golden + round.number);
  return mix(stream + index * golden);
}

// Whether a rank contributes to an element, where only `turns` ranks may; the same on all ranks.
bool has_turn(const Round& round, int rank, std::size_t index, std::uint64_t turns) {
  const auto ranks = static_cast<std::uint64_t>(round.ranks);
  const std::uint64_t offset = mix(index + round.number) % ranks;
  return (static_cast<std::uint64_t>(rank) + offset) % ranks < turns;
}

// What a rank contributes to "and" and "or": of these hardly any result of many ranks would depend
// on random bits of one. Each bit is set on few ranks; for a logical operation bit 0 says whether
// the number is another one than most ranks have.
std::uint64_t rare_bits(const Round& round, int rank, std::size_t index) {
  std::uint64_t bits = random_of(round, rank, index);
  std::uint64_t rare = bits;
  for (int ranks = 4; ranks <= round.ranks; ranks *= 2) {
    bits = mix(bits + golden);
    rare &= bits;
  }
  return rare;
}

int scalar_of(int rank) { return 1 + rank % 2; }
constexpr int scalar_most = 2;

template <class T>
struct Whole {
  using Value = T;
  using Bits = T;
  static T value(const Round& round, int rank, std::size_t index) {
    const std::uint64_t random = random_of(round, rank, index);
    if (*round.op < pithBand || *round.op > pithLxor) return static_cast<T>(random);
    return static_cast<T>(value_of_bits(round, rank, index, random));
  }
  static std::uint64_t value_of_bits(const Round& round, int rank, std::size_t index,
                                     std::uint64_t random) {
    const std::uint64_t rare = rare_bits(round, rank, index);
    const std::uint64_t something = random | std::uint64_t{1} << random % 8;
    const bool is_rare = (rare & 1) != 0;
    switch (*round.op) {
      case pithBand:
        return ~rare;
      case pithBor:
        return rare;
      case pithLand:
        return is_rare ? 0 : something;
      case pithLor:
        return is_rare ? something : 0;
      case pithLxor:
        return (random >> 32 & 1) != 0 ? something : 0;
      default:
        return random;
    }
  }
  static T combine(pithRedOp_t op, T a, T b) {
    if (op == pithMax) return std::max(a, b);
    if (op == pithMin) return std::min(a, b);
    if (op == pithBand) return static_cast<T>(a & b);
    if (op == pithBor) return static_cast<T>(a | b);
    if (op == pithBxor) return static_cast<T>(a ^ b);
    if (op == pithLand) return a != 0 && b != 0;
    if (op == pithLor) return a != 0 || b != 0;
    if (op == pithLxor) return (a != 0) != (b != 0);
    // The low bits of a result do not depend on the operands' signs.
    const std::uint64_t wide_a = static_cast<std::make_unsigned_t<T>>(a);
    const std::uint64_t wide_b = static_cast<std::make_unsigned_t<T>>(b);
    return static_cast<T>(op == pithProd ? wide_a * wide_b : wide_a + wide_b);
  }
  static T finish(const Round& round, T value) {
    const bool is_logical = *round.op >= pithLand && *round.op <= pithLxor;
    if (is_logical) return value != 0;  // also of one rank
    if (*round.op != pithAvg) return value;
    if constexpr (std::is_signed_v<T>) {
      return static_cast<T>(static_cast<std::int64_t>(value) / round.ranks);
    } else {
      return static_cast<T>(static_cast<std::uint64_t>(value) /
                            static_cast<std::uint64_t>(round.ranks));
    }
  }
  static Bits encode(T value) { return value; }
};

// A floating-point format; `bits_of` turns a value into its bits, rounding to nearest even.
template <class BitsT, int mantissa_bits, int exponent_bias>
struct Real {
  using Value = double;
  using Bits = BitsT;
  static constexpr std::uint64_t limit = std::uint64_t{1} << (mantissa_bits + 1);

  static double value(const Round& round, int rank, std::size_t index) {
    const std::uint64_t random = random_of(round, rank, index);
    if (*round.op == pithProd) {
      const int power = has_turn(round, rank, index, 4) ? static_cast<int>(random % 3) - 1 : 0;
      return std::ldexp(random >> 63 ? -1.0 : 1.0, power);
    }
    // Where one value is picked, all ranks may use the whole range; sums have to share it.
    const bool picks = *round.op == pithMax || *round.op == pithMin;
    const std::uint64_t whole = *round.op == mulsum ? limit / scalar_most : limit;
    const std::uint64_t share = picks ? whole : whole / static_cast<std::uint64_t>(round.ranks);
    if (share > 0) return centred(random, share);
    return has_turn(round, rank, index, whole) ? static_cast<double>(random % 3) - 1 : 0;
  }
  static double centred(std::uint64_t random, std::uint64_t share) {
    // Reducing modulo a power of two is cheaper.
    std::uint64_t span = share;
    while ((span & (span - 1)) != 0) span &= span - 1;
    return static_cast<double>(random & (2 * span - 1)) - static_cast<double>(span);
  }
  static double combine(pithRedOp_t op, double a, double b) {
    if (op == pithMax) return std::max(a, b);
    if (op == pithMin) return std::min(a, b);
    return op == pithProd ? a * b : a + b;
  }
  // Types below 64 bits are divided as 32-bit floats.
  static double finish(const Round& round, double value) {
    if (*round.op != pithAvg) return value;
    if constexpr (sizeof(Bits) == 8) return value / round.ranks;
    return static_cast<double>(static_cast<float>(value) / static_cast<float>(round.ranks));
  }
  static Bits encode(double value) {
    if constexpr (sizeof(Bits) == 8) return bit_copy<Bits>(value);
    if constexpr (sizeof(Bits) == 4) return bit_copy<Bits>(static_cast<float>(value));
    const auto sign = static_cast<std::uint64_t>(std::signbit(value)) << (8 * sizeof(Bits) - 1);
    if (value == 0) return static_cast<Bits>(sign);
    const int exponent = std::max(std::ilogb(value), 1 - exponent_bias);
    const double scaled = std::nearbyint(std::ldexp(std::fabs(value), mantissa_bits - exponent));
    const auto base = static_cast<std::uint64_t>(exponent + exponent_bias - 1) << mantissa_bits;
    return static_cast<Bits>(sign | (base + static_cast<std::uint64_t>(scaled)));
  }
  template <class To, class From>
  static To bit_copy(From value) {
    To bits = 0;
    if constexpr (sizeof(To) == sizeof(From)) std::memcpy(&bits, &value, sizeof(bits));
    return bits;
  }
};

template <class Body>
auto with_type(pithDataType_t type, const Body& body) {
  switch (type) {
    case pithInt8:
      return body(Whole<std::int8_t>{});
    case pithUint8:
      return body(Whole<std::uint8_t>{});
    case pithInt32:
      return body(Whole<std::int32_t>{});
    case pithUint32:
      return body(Whole<std::uint32_t>{});
    case pithInt64:
      return body(Whole<std::int64_t>{});
    case pithUint64:
      return body(Whole<std::uint64_t>{});
    case pithFloat16:
      return body(Real<std::uint16_t, 10, 15>{});
    case pithFloat64:
      return body(Real<std::uint64_t, 52, 1023>{});
    case pithBfloat16:
      return body(Real<std::uint16_t, 7, 127>{});
    case pithFloat8e4m3:
      return body(Real<std::uint8_t, 3, 7>{});
    case pithFloat8e5m2:
      return body(Real<std::uint8_t, 2, 15>{});
    case pithFloat32:
    case pithComplex64:  // no program takes complex types
    case pithComplex128:
      break;
  }
  return body(Real<std::uint32_t, 23, 127>{});
}

template <class Type>
typename Type::Bits contribution(const Round& round, int rank, std::size_t index) {
  using Bits = typename Type::Bits;
  if (!round.op) return static_cast<Bits>(random_of(round, rank, index));
  return Type::encode(Type::value(round, rank, index));
}

template <class Type>
typename Type::Bits reduction(const Round& round, std::size_t index) {
  using Value = typename Type::Value;
  const auto term = [&](int rank) {
    const Value value = Type::value(round, rank, index);
    if (*round.op != mulsum) return value;
    return Type::combine(pithProd, value, static_cast<Value>(scalar_of(rank)));
  };
  Value value = term(0);
  for (int rank = 1; rank < round.ranks; ++rank) {
    value = Type::combine(*round.op, value, term(rank));
  }
  return Type::encode(Type::finish(round, value));
}

// Counts elements that differ from expected(i), i < count.
template <class Bits, class Expected>
std::int64_t count_other(const void* data, std::size_t count, const Expected& expected) {
  const auto* at = static_cast<const std::byte*>(data);
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, at + i * sizeof(Bits), sizeof(Bits));
    wrong += bits != expected(i);
  }
  return wrong;
}

}  // namespace

std::size_t size_of(pithDataType_t type) {
  return with_type(type, [](auto format) { return sizeof(typename decltype(format)::Bits); });
}

void fill(void* data, std::size_t count, int rank, std::size_t first, const Round& round) {
  with_type(round.type, [&]<class Type>(Type) {
    auto* at = static_cast<std::byte*>(data);
    for (std::size_t i = 0; i < count; ++i) {
      const auto bits = contribution<Type>(round, rank, first + i);
      std::memcpy(at + i * sizeof(bits), &bits, sizeof(bits));
    }
  });
}

std::int64_t count_not_of(const void* data, std::size_t count, int rank, std::size_t first,
                          const Round& round) {
  return with_type(round.type, [&]<class Type>(Type) {
    return count_other<typename Type::Bits>(
        data, count, [&](std::size_t i) { return contribution<Type>(round, rank, first + i); });
  });
}

std::array<std::byte, 8> premultiplier(pithDataType_t type, int rank) {
  std::array<std::byte, 8> scalar = {};
  with_type(type, [&]<class Type>(Type) {
    const auto bits = Type::encode(static_cast<typename Type::Value>(scalar_of(rank)));
    std::memcpy(scalar.data(), &bits, sizeof(bits));
  });
  return scalar;
}

std::int64_t count_not_reduced(const void* data, std::size_t count, std::size_t first,
                               const Round& round) {
  return with_type(round.type, [&]<class Type>(Type) {
    return count_other<typename Type::Bits>(
        data, count, [&](std::size_t i) { return reduction<Type>(round, first + i); });
  });
}

}  // namespace pith_perf
