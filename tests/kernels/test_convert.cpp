// Conversion, squares and the parting of lists against their plain twins.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/cast.hpp"
#include "kernels/sparse.hpp"
#include "kernels/sparse_scalar.hpp"
#include "support.hpp"

namespace pith::test {

namespace {

std::vector<float> some_floats(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = std::sin(float(i) * 1.7f) * std::ldexp(1.0f, static_cast<int>(i % 40) - 20);
  }
  if (count > 3) values[3] = std::numeric_limits<float>::infinity();
  if (count > 5) values[5] = -std::numeric_limits<float>::quiet_NaN();
  return values;
}

constexpr std::size_t counts[] = {0, 1, 7, 8, 1023, 1024, 1025, 5000};
constexpr DType types[] = {DType::f32, DType::f16, DType::bf16};

void check_convert(DType in_type, DType type, std::size_t count, float divisor) {
  const std::vector<float> from = some_floats(count);
  std::vector<std::byte> in(4 * count + 1);
  kernels::scalar::convert({in.data() + 1, in_type, reinterpret_cast<const std::byte*>(from.data()),
                            DType::f32, count, 1});
  std::vector<std::byte> fast(4 * count + 3, std::byte{0x5a});
  std::vector<std::byte> plain = fast;
  kernels::convert({fast.data() + 2, type, in.data() + 1, in_type, count, divisor});
  kernels::scalar::convert({plain.data() + 2, type, in.data() + 1, in_type, count, divisor});
  // A NaN of float32 keeps its payload in the twin only where nothing is converted.
  if (type != DType::f32) CHECK(fast == plain);
  for (std::size_t i = 0; type == DType::f32 && i < count; ++i) {
    float a = 0;
    float b = 0;
    std::memcpy(&a, fast.data() + 2 + 4 * i, 4);
    std::memcpy(&b, plain.data() + 2 + 4 * i, 4);
    const bool same = std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
                      (std::isnan(a) && std::isnan(b));
    if (!same) FAIL("element " << i << " is " << a << ", expected " << b);
  }
}

std::vector<float> finite_floats(std::size_t count) {
  std::vector<float> values = some_floats(count);
  for (float& value : values) value = std::isfinite(value) ? value : 1;
  return values;
}

void check_squares(std::size_t count, std::size_t shift, DType type) {
  const std::vector<float> values = finite_floats(count + shift);
  std::vector<std::byte> narrowed(values.size() * size_of(type));
  kernels::cast(narrowed.data(), type, reinterpret_cast<const std::byte*>(values.data()),
                DType::f32, values.size());
  const std::byte* const from = narrowed.data() + shift * size_of(type);
  double fast = -1;
  double plain = -1;
  kernels::squares({from, count, type, &fast});
  kernels::scalar::squares({from, count, type, &plain});
  CHECK((fast == plain || fast == Approx(plain)));  // infinite where a number is too large for f16
}

// What one split makes of a list, behind `shift` elements of every buffer.
struct List {
  std::size_t shift = 0;
  std::vector<std::uint32_t> indices, lower_indices;
  std::vector<float> values, lower_values;
  std::size_t kept = 0, lower = 0;

  List(std::size_t count, std::size_t begin)
      : shift(begin),
        indices(begin + count),
        lower_indices(begin + count),
        values(finite_floats(begin + count)),
        lower_values(begin + count) {
    for (std::size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<std::uint32_t>(3 * i);
  }
  SplitKernel::Args args(float threshold) {
    return {indices.data() + shift,
            values.data() + shift,
            indices.size() - shift,
            threshold,
            lower_indices.data() + shift,
            lower_values.data() + shift,
            &kept,
            &lower};
  }
  // What counts.
  void cut() {
    indices.resize(shift + kept);
    values.resize(shift + kept);
    lower_indices.resize(shift + lower);
    lower_values.resize(shift + lower);
  }
};

void check_split(std::size_t count, std::size_t shift, float threshold) {
  List fast(count, shift);
  List plain = fast;
  kernels::split(fast.args(threshold));
  kernels::scalar::split(plain.args(threshold));
  REQUIRE(fast.kept == plain.kept);
  REQUIRE(fast.lower == plain.lower);
  fast.cut();
  plain.cut();
  CHECK(fast.indices == plain.indices);
  CHECK(fast.values == plain.values);
  CHECK(fast.lower_indices == plain.lower_indices);
  CHECK(fast.lower_values == plain.lower_values);
}

}  // namespace

TEST_CASE("conversion of values is that of the twin", "[convert]") {
  kernels::test::for_each_target([] {
    for (const std::size_t count : counts) {
      for (const DType in_type : types) {
        for (const DType type : types) {
          for (const float divisor : {1.0f, 3.0f}) check_convert(in_type, type, count, divisor);
        }
      }
    }
  });
}

TEST_CASE("squares are those of the twin, in another order", "[convert]") {
  kernels::test::for_each_target([] {
    for (const std::size_t count : counts) {
      for (const std::size_t shift : {0, 1}) {
        for (const DType type : types) check_squares(count, shift, type);
      }
    }
  });
}

TEST_CASE("a list is parted as by the twin", "[convert]") {
  kernels::test::for_each_target([] {
    for (const std::size_t count : counts) {
      for (const std::size_t shift : {0, 1}) {
        for (const float threshold : {0.0f, 0.01f, 1.0f, 1e9f}) {
          check_split(count, shift, threshold);
        }
      }
    }
  });
}

}  // namespace pith::test
