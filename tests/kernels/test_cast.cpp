#include "kernels/cast.hpp"

#include <cmath>
#include <limits>

#include "kernels/element.hpp"
#include "kernels/scalar.hpp"
#include "support.hpp"

namespace pith::kernels::test {
namespace {

// A reference that shares nothing with the library: each format as the sorted list of its numbers,
// built in double arithmetic from its definition; conversion looks for the nearest.
struct Reference {
  int bits, mantissa, bias;
  bool has_infinity, saturates;

  double value(unsigned magnitude) const {
    const int exponent = static_cast<int>(magnitude >> mantissa);
    const double fraction = static_cast<double>(magnitude % (1u << mantissa)) / (1 << mantissa);
    return exponent == 0 ? std::pow(2.0, 1 - bias) * fraction
                         : std::pow(2.0, exponent - bias) * (1.0 + fraction);
  }
  unsigned infinity() const { return ((1u << (bits - 1 - mantissa)) - 1) << mantissa; }
  // The first magnitude that is not a number.
  unsigned end() const { return has_infinity ? infinity() : (1u << (bits - 1)) - 1; }

  std::vector<double> numbers() const {
    std::vector<double> list;
    for (unsigned m = 0; m < end(); ++m) list.push_back(value(m));
    return list;
  }

  unsigned nearest(const std::vector<double>& list, double x) const {
    const unsigned sign = std::signbit(x) ? 1u << (bits - 1) : 0u;
    if (std::isnan(x)) return (1u << (bits - 1)) - 1;
    x = std::fabs(x);
    if (std::isinf(x) && has_infinity) return sign | infinity();
    const auto above = std::lower_bound(list.begin(), list.end(), x);
    if (above == list.end()) {
      // IEEE 754: overflow begins half a step above the largest number.
      const double limit = list.back() + (list.back() - list[list.size() - 2]) / 2;
      const auto last = static_cast<unsigned>(list.size() - 1);
      return sign | (saturates || x < limit ? last : infinity());
    }
    const auto high = static_cast<unsigned>(above - list.begin());
    if (*above == x || high == 0) return sign | high;
    const double to_low = x - list[high - 1];
    const double to_high = *above - x;
    const bool up = to_high < to_low || (to_high == to_low && high % 2 == 0);
    return sign | (up ? high : high - 1);
  }
};

struct Narrow {
  DType type;
  Reference reference;
};

const Narrow narrow_types[] = {{DType::f16, {16, 10, 15, true, false}},
                               {DType::bf16, {16, 7, 127, true, false}},
                               {DType::f8e4m3, {8, 3, 7, false, true}},
                               {DType::f8e5m2, {8, 2, 15, true, true}}};

template <class T>
std::byte* bytes_of(std::vector<T>& v) {
  return reinterpret_cast<std::byte*>(v.data());
}

unsigned code_at(const Bytes& codes, std::size_t i, int bits) {
  return bits == 8 ? load<std::uint8_t>(codes.data(), i) : load<std::uint16_t>(codes.data(), i);
}

Bytes all_codes(int bits) {
  Bytes codes((std::size_t{1} << bits) * static_cast<std::size_t>(bits / 8));
  for (unsigned c = 0; c < 1u << bits; ++c) {
    if (bits == 8)
      store(codes.data(), c, static_cast<std::uint8_t>(c));
    else
      store(codes.data(), c, static_cast<std::uint16_t>(c));
  }
  return codes;
}

TEST_CASE("every narrow code widens to its value") {
  for_each_target([] {
    for (const auto& [type, reference] : narrow_types) {
      INFO("type " << name_of(type));
      const Bytes codes = all_codes(reference.bits);
      const std::size_t n = std::size_t{1} << reference.bits;
      std::vector<float> wide(n);
      std::vector<double> wider(n);
      cast(bytes_of(wide), DType::f32, codes.data(), type, n);
      cast(bytes_of(wider), DType::f64, codes.data(), type, n);
      int wrong = 0;
      for (unsigned c = 0; c < n; ++c) {
        const unsigned magnitude = c & static_cast<unsigned>(n / 2 - 1);
        const bool infinite = reference.has_infinity && magnitude == reference.infinity();
        double expected =
            infinite ? std::numeric_limits<double>::infinity() : reference.value(magnitude);
        if (c != magnitude) expected = -expected;
        if (magnitude >= reference.end() && !infinite) {
          wrong += std::bit_cast<std::uint32_t>(wide[c]) != nan_f32;
          wrong += std::bit_cast<std::uint64_t>(wider[c]) != nan_f64;
        } else {
          wrong += wide[c] != static_cast<float>(expected) || wider[c] != expected;
          wrong += std::signbit(wide[c]) != std::signbit(expected);
        }
      }
      CHECK(wrong == 0);
    }
  });
}

// Each number of the format, each midpoint between two, and the float32 and float64 next to those.
template <class T>
std::vector<T> probes(const std::vector<double>& numbers) {
  std::vector<T> list;
  const auto add = [&list](double x) {
    const T t = static_cast<T>(x);
    const T largest = std::numeric_limits<T>::max();
    for (const T near : {t, std::nextafter(t, T{0}), std::nextafter(t, largest)}) {
      list.push_back(near);
      list.push_back(-near);
    }
  };
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    add(numbers[i]);
    if (i > 0) add((numbers[i] + numbers[i - 1]) / 2);
  }
  const double last = numbers.back();
  const double step = last - numbers[numbers.size() - 2];
  for (const double beyond : {last + step / 2, last + step, 2 * last}) {
    if (beyond <= static_cast<double>(std::numeric_limits<T>::max())) add(beyond);
  }
  for (const T extreme : {std::numeric_limits<T>::infinity(), std::numeric_limits<T>::quiet_NaN(),
                          std::numeric_limits<T>::max(), std::numeric_limits<T>::denorm_min(),
                          std::numeric_limits<T>::min()}) {
    list.push_back(extreme);
    list.push_back(-extreme);
  }
  return list;
}

template <class T>
void check_narrowing(const Narrow& narrow, DType from) {
  const auto& [type, reference] = narrow;
  INFO("from " << name_of(from) << " to " << name_of(type));
  const std::vector<double> numbers = reference.numbers();
  std::vector<T> values = probes<T>(numbers);
  std::mt19937_64 random(11);
  for (int i = 0; i < 20000; ++i) {
    if constexpr (sizeof(T) == 4) {
      values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
    } else {
      values.push_back(std::bit_cast<double>(random()));
    }
  }
  Bytes codes(values.size() * size_of(type));
  cast(codes.data(), type, bytes_of(values), from, values.size());
  int wrong = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const unsigned expected = reference.nearest(numbers, static_cast<double>(values[i]));
    wrong += code_at(codes, i, reference.bits) != expected;
  }
  CHECK(wrong == 0);
}

TEST_CASE("narrowing finds the nearest number, ties to even") {
  for_each_target([] {
    for (const Narrow& narrow : narrow_types) check_narrowing<float>(narrow, DType::f32);
  });
  for (const Narrow& narrow : narrow_types) check_narrowing<double>(narrow, DType::f64);
}

TEST_CASE("every pair of types equals the scalar twin, at any length and address") {
  constexpr DType floats[] = {DType::f16,  DType::f32,    DType::f64,
                              DType::bf16, DType::f8e4m3, DType::f8e5m2};
  for_each_target([&floats] {
    for (const DType from : floats) {
      for (const DType to : floats) {
        INFO("from " << name_of(from) << " to " << name_of(to));
        for (std::size_t count = 0; count <= 129; ++count) {
          const std::size_t offset = count % 5;
          const std::size_t n = count == 129 ? 70001 : count;
          const Bytes in = random_elements(from, n, offset, static_cast<unsigned>(count));
          Bytes out(n * size_of(to) + 64 + offset, std::byte{0x5a});
          Bytes expected = out;
          cast(out.data() + offset, to, in.data() + offset, from, n);
          scalar::cast(expected.data() + offset, to, in.data() + offset, from, n);
          REQUIRE(first_difference(out, expected) == -1);
          if (size_of(from) != size_of(to)) continue;
          Bytes in_place = in;
          cast(in_place.data() + offset, to, in_place.data() + offset, from, n);
          REQUIRE((n == 0 || std::memcmp(in_place.data() + offset, expected.data() + offset,
                                         n * size_of(to)) == 0));
        }
      }
    }
  });
}

}  // namespace
}  // namespace pith::kernels::test
