#include "kernels/reduce.hpp"

#include <cmath>
#include <complex>
#include <limits>

#include "kernels/element.hpp"
#include "kernels/scalar.hpp"
#include "support.hpp"

namespace pith::kernels::test {
namespace {

constexpr std::size_t guard = 80;  // bytes after each output that must stay as they were

template <class Body>
void for_each_type_and_op(Body body) {
  for (const DType type : all_types) {
    for (const Op op : all_ops) {
      if (!is_defined(op, type)) continue;
      INFO("type " << name_of(type) << " op " << name_of(op));
      body(type, op);
    }
  }
}

struct Pair {
  DType type;
  std::size_t count, offset_a, offset_b;
  Bytes a, b;

  Pair(DType t, std::size_t n, std::size_t from_a, std::size_t from_b)
      : type(t),
        count(n),
        offset_a(from_a),
        offset_b(from_b),
        a(random_elements(t, n, from_a, static_cast<unsigned>(n + from_a))),
        b(random_elements(t, n, from_b, static_cast<unsigned>(~n))) {
    a.resize(a.size() + guard, std::byte{0x5a});
    b.resize(b.size() + guard, std::byte{0x5a});
  }
  std::byte* at_a() { return a.data() + offset_a; }
  std::byte* at_b() { return b.data() + offset_b; }
  Bytes output(std::size_t offset) const {
    return Bytes(offset + count * size_of(type) + guard, std::byte{0x5a});
  }
  Bytes expected(std::size_t offset, Op op) {
    Bytes out = output(offset);
    scalar::reduce(out.data() + offset, at_a(), at_b(), count, type, op);
    return out;
  }
};

void check_pair(DType type, Op op, std::size_t count, std::size_t offset, Stores stores) {
  Pair pair(type, count, offset, (offset * 7) % 67);
  const Bytes expected = pair.expected(offset, op);
  Bytes out = pair.output(offset);
  reduce(out.data() + offset, pair.at_a(), pair.at_b(), count, type, op, stores);
  if (first_difference(out, expected) >= 0) {
    CAPTURE(count, offset, first_difference(out, expected));
    REQUIRE(out == expected);
  }
}

TEST_CASE("every type, operation, tail and alignment equals the scalar twin") {
  for_each_target([] {
    for_each_type_and_op([](DType type, Op op) {
      for (std::size_t count = 0; count <= 129; ++count) {
        for (const std::size_t offset : {0, 1, 3, 4, 32, 33}) {
          check_pair(type, op, count, offset, Stores::cached);
          check_pair(type, op, count, offset, Stores::streaming);
        }
      }
      check_pair(type, op, 5003, 5, Stores::cached);
      check_pair(type, op, 5003, 16, Stores::streaming);
      SUCCEED();
    });
  });
}

TEST_CASE("every pair of 8-bit codes and of special values equals the scalar twin") {
  for_each_target([] {
    for_each_type_and_op([](DType type, Op op) {
      std::vector<std::uint64_t> patterns = special_patterns(type);
      if (size_of(type) == 1) {
        patterns.resize(256);
        for (std::size_t i = 0; i < 256; ++i) patterns[i] = i;
      }
      const std::size_t n = patterns.size();
      const std::size_t parts = is_complex(type) ? 2 : 1;
      const std::size_t bytes = size_of(type) / parts;
      Pair pair(type, n * n / parts, 0, 0);
      for (std::size_t i = 0; i < n * n; ++i) {
        std::memcpy(pair.at_a() + i * bytes, &patterns[i / n], bytes);
        std::memcpy(pair.at_b() + i * bytes, &patterns[i % n], bytes);
      }
      Bytes out = pair.output(0);
      reduce(out.data(), pair.at_a(), pair.at_b(), pair.count, type, op);
      REQUIRE(first_difference(out, pair.expected(0, op)) == -1);
      // The order of the two operands must not matter, not even for NaNs.
      reduce(out.data(), pair.at_b(), pair.at_a(), pair.count, type, op);
      REQUIRE(first_difference(out, pair.expected(0, op)) == -1);
    });
  });
}

TEST_CASE("the output may be either input") {
  for_each_target([] {
    for_each_type_and_op([](DType type, Op op) {
      for (const std::size_t count : {1, 2, 7, 31, 32, 33, 63, 64, 65, 100, 129, 1000}) {
        for (const Stores stores : {Stores::cached, Stores::streaming}) {
          for (const std::size_t offset : {0, 8, 1}) {
            Pair pair(type, count, offset, offset);
            const Bytes expected = pair.expected(offset, op);
            Pair copied = pair;
            reduce(pair.at_a(), pair.at_a(), pair.at_b(), count, type, op, stores);
            reduce(copied.at_b(), copied.at_a(), copied.at_b(), count, type, op, stores);
            const std::size_t end = offset + count * size_of(type);
            REQUIRE(std::memcmp(pair.at_a(), expected.data() + offset, end - offset) == 0);
            REQUIRE(std::memcmp(copied.at_b(), expected.data() + offset, end - offset) == 0);
          }
        }
      }
    });
  });
}

TEST_CASE("reduce_to_two writes the same result twice") {
  for_each_target([] {
    for_each_type_and_op([](DType type, Op op) {
      for (const std::size_t count : {0, 1, 5, 16, 33, 64, 127, 700}) {
        for (const Stores stores : {Stores::cached, Stores::streaming}) {
          for (const std::size_t offset : {0, 1, 16}) {
            Pair pair(type, count, 0, 3);
            const Bytes expected = pair.expected(0, op);
            Bytes first = pair.output(0);
            Bytes second = pair.output(offset);
            reduce_to_two(first.data(), second.data() + offset, pair.at_a(), pair.at_b(), count,
                          type, op, stores);
            second.erase(second.begin(), second.begin() + static_cast<std::ptrdiff_t>(offset));
            REQUIRE(first_difference(first, expected) == -1);
            REQUIRE(first_difference(second, expected) == -1);
            reduce_to_two(pair.at_a(), second.data(), pair.at_a(), pair.at_b(), count, type, op,
                          stores);
            const std::size_t bytes = count * size_of(type);
            REQUIRE(Bytes(pair.a.begin(), pair.a.begin() + static_cast<std::ptrdiff_t>(bytes)) ==
                    Bytes(first.begin(), first.begin() + static_cast<std::ptrdiff_t>(bytes)));
          }
        }
      }
    });
  });
}

TEST_CASE("reduce_many folds from the left and may write over any input") {
  for_each_target([] {
    for_each_type_and_op([](DType type, Op op) {
      for (const int n : {1, 2, 3, 6}) {
        for (const std::size_t count :
             {std::size_t{0}, std::size_t{3}, std::size_t{130}, 16384 / size_of(type) + 17}) {
          std::vector<Bytes> inputs;
          std::vector<const std::byte*> in;
          for (int k = 0; k < n; ++k) {
            inputs.push_back(random_elements(type, count, 1, static_cast<unsigned>(k + 1)));
          }
          for (const Bytes& input : inputs) in.push_back(input.data() + 1);
          Bytes expected(count * size_of(type));
          scalar::reduce_many(expected.data(), in.data(), n, count, type, op);

          Bytes out(expected.size());
          reduce_many(out.data(), in.data(), n, count, type, op);
          REQUIRE(first_difference(out, expected) == -1);
          for (Bytes& input : inputs) {
            const Bytes before = input;
            reduce_many(input.data() + 1, in.data(), n, count, type, op);
            REQUIRE(Bytes(input.begin() + 1, input.end()) == expected);
            std::copy(before.begin(), before.end(), input.begin());
          }
        }
      }
    });
  });
}

TEST_CASE("finish_avg equals the scalar twin") {
  for_each_target([] {
    for (const DType type : all_types) {
      for (const float divisor : {1.0f, 2.0f, 3.0f, 7.0f, 128.0f, 300.0f, 7e4f, 0.75f}) {
        if (divisor < 1 && is_integer(type)) continue;
        for (const std::size_t count : {0, 1, 9, 64, 129, 1001}) {
          INFO("type " << name_of(type) << " divisor " << divisor << " count " << count);
          Bytes data = random_elements(type, count, 1, static_cast<unsigned>(divisor));
          Bytes expected = data;
          finish_avg(data.data() + 1, count, type, divisor);
          scalar::finish_avg(expected.data() + 1, count, type, divisor);
          REQUIRE(first_difference(data, expected) == -1);
        }
      }
    }
  });
}

TEST_CASE("scale is the product with one factor, in place too") {
  for (const DType type : all_types) {
    INFO("type " << name_of(type));
    for (const std::size_t count : {0u, 1u, 7u, 511u, 512u, 513u, 4096u, 10'001u}) {
      const std::size_t offset = count % 5;
      Pair pair(type, count, offset, 0);
      const Bytes factor = random_elements(type, 1, 3, static_cast<unsigned>(count));
      for (std::size_t i = 0; i < count; ++i) {
        std::memcpy(pair.at_b() + i * size_of(type), factor.data() + 3, size_of(type));
      }
      const Bytes expected = pair.expected(offset, Op::prod);
      Bytes out = pair.output(offset);
      scale(out.data() + offset, pair.at_a(), factor.data() + 3, count, type);
      CHECK(first_difference(out, expected) < 0);
      scale(pair.at_a(), pair.at_a(), factor.data() + 3, count, type);
      CHECK(std::memcmp(pair.at_a(), expected.data() + offset, count * size_of(type)) == 0);
    }
  }
}

TEST_CASE("copy, cached and streaming") {
  for_each_target([] {
    for (const std::size_t bytes : {0, 1, 31, 32, 33, 64, 100, 4097}) {
      for (const std::size_t offset : {0, 1, 16}) {
        const Bytes in = random_elements(DType::u8, bytes, offset, 7);
        for (const Stores stores : {Stores::cached, Stores::streaming}) {
          Bytes out(bytes + guard, std::byte{0x5a});
          kernels::copy(out.data(), in.data() + offset, bytes, stores);
          Bytes expected(in.begin() + static_cast<std::ptrdiff_t>(offset), in.end());
          expected.resize(bytes + guard, std::byte{0x5a});
          REQUIRE(first_difference(out, expected) == -1);
        }
      }
    }
  });
}

// What pith.h promises, spelled out: the twins could be wrong in the same way as the kernels.
template <class T>
T result(T a, T b, DType type, Op op) {
  std::vector<T> in_a(67, a), in_b(67, b), out(67);
  const auto bytes = [](std::vector<T>& v) { return reinterpret_cast<std::byte*>(v.data()); };
  reduce(bytes(out), bytes(in_a), bytes(in_b), out.size(), type, op);
  std::vector<T> single(1);
  reduce(bytes(single), bytes(in_a), bytes(in_b), 1, type, op);
  CHECK(std::equal(bytes(single), bytes(single) + sizeof(T), bytes(out)));
  return out[40];
}

// Without infinities std::complex has the same formula.
template <class Part>
void check_complex_product(DType type) {
  using Number = std::complex<Part>;
  std::mt19937_64 random(9);
  const auto draw = [&] { return static_cast<Part>(random() >> 11) * Part(0x1p-52) - 1; };
  for (const std::size_t count : {1u, 2u, 3u, 4u, 5u, 8u, 17u, 1000u}) {
    std::vector<Number> a(count), b(count), out(count);
    for (Number& number : a) number = {draw(), draw()};
    for (Number& number : b) number = {draw(), draw()};
    const auto bytes = [](std::vector<Number>& v) {
      return reinterpret_cast<std::byte*>(v.data());
    };
    reduce(bytes(out), bytes(a), bytes(b), count, type, Op::prod);
    for (std::size_t i = 0; i < count; ++i) REQUIRE(out[i] == a[i] * b[i]);
    reduce(bytes(out), bytes(a), bytes(b), count, type, Op::sum);
    for (std::size_t i = 0; i < count; ++i) REQUIRE(out[i] == a[i] + b[i]);
    finish_avg(bytes(out), count, type, 3);
    for (std::size_t i = 0; i < count; ++i) REQUIRE(out[i] == (a[i] + b[i]) / Part(3));
    scale(bytes(out), bytes(a), bytes(b), count, type);
    for (std::size_t i = 0; i < count; ++i) REQUIRE(out[i] == a[i] * b[0]);
  }
}

TEST_CASE("complex numbers are multiplied, added and divided as by std::complex") {
  for_each_target([] {
    check_complex_product<float>(DType::c64);
    check_complex_product<double>(DType::c128);
  });
}

TEST_CASE("the promises of pith.h by example") {
  constexpr float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(result<std::int8_t>(127, 1, DType::i8, Op::sum) == -128);
  CHECK(result<std::int8_t>(-100, 3, DType::i8, Op::prod) == -44);
  CHECK(result<std::int64_t>(INT64_MAX, 2, DType::i64, Op::prod) == -2);
  CHECK(result<std::uint64_t>(UINT64_MAX, 1, DType::u64, Op::max) == UINT64_MAX);
  CHECK(result<std::int64_t>(-1, 1, DType::i64, Op::max) == 1);
  CHECK(result<std::uint8_t>(0xac, 0x5a, DType::u8, Op::band) == 0x08);
  CHECK(result<std::int32_t>(-256, 0x0ff0, DType::i32, Op::bor) == -16);
  CHECK(result<std::uint64_t>(UINT64_MAX, 1, DType::u64, Op::bxor) == UINT64_MAX - 1);
  CHECK(result<std::int8_t>(2, -128, DType::i8, Op::land) == 1);  // of bits it would be 0
  CHECK(result<std::int64_t>(INT64_MIN, 0, DType::i64, Op::land) == 0);
  CHECK(result<std::uint32_t>(0, 256, DType::u32, Op::lor) == 1);
  CHECK(result<std::uint32_t>(0, 0, DType::u32, Op::lor) == 0);
  CHECK(result<std::int32_t>(-1, 6, DType::i32, Op::lxor) == 0);
  CHECK(result<std::uint8_t>(0, 6, DType::u8, Op::lxor) == 1);
  CHECK(std::isnan(result(nan, inf, DType::f32, Op::max)));
  CHECK(std::isnan(result(-inf, nan, DType::f32, Op::min)));
  CHECK(!std::signbit(result(-0.0f, 0.0f, DType::f32, Op::max)));
  CHECK(std::signbit(result(0.0f, -0.0f, DType::f32, Op::min)));
  CHECK(std::bit_cast<std::uint32_t>(result(inf, -inf, DType::f32, Op::sum)) == nan_f32);
  CHECK(result<std::uint16_t>(0x7bff, 0x7bff, DType::f16, Op::sum) == 0x7c00);   // overflow
  CHECK(result<std::uint16_t>(0x0001, 0x8000, DType::f16, Op::sum) == 0x0001);   // subnormal
  CHECK(result<std::uint16_t>(0x7f7f, 0x7f7f, DType::bf16, Op::sum) == 0x7f80);  // overflow
  CHECK(result<std::uint16_t>(0x3f80, 0x3b80, DType::bf16, Op::sum) == 0x3f80);  // tie to even
  CHECK(result<std::uint16_t>(0x3f81, 0x3b80, DType::bf16, Op::sum) == 0x3f82);  // tie to even
  CHECK(result<std::uint16_t>(0x8000, 0x0000, DType::f16, Op::min) == 0x8000);
  CHECK(result<std::uint16_t>(0xfe01, 0x7c00, DType::f16, Op::max) == 0x7fff);  // NaN wins
  CHECK(result<std::uint8_t>(0x7e, 0x7e, DType::f8e4m3, Op::sum) == 0x7e);      // saturates
  CHECK(result<std::uint8_t>(0xfe, 0x7e, DType::f8e4m3, Op::prod) == 0xfe);     // saturates
  CHECK(result<std::uint8_t>(0xff, 0x00, DType::f8e4m3, Op::sum) == 0x7f);      // NaN
  CHECK(result<std::uint8_t>(0x7b, 0x7b, DType::f8e5m2, Op::sum) == 0x7b);      // saturates
  CHECK(result<std::uint8_t>(0x7c, 0x7b, DType::f8e5m2, Op::sum) == 0x7c);      // infinity stays
  CHECK(result<std::uint8_t>(0x7c, 0xfc, DType::f8e5m2, Op::sum) == 0x7f);      // NaN

  std::int32_t sum = -7;
  finish_avg(reinterpret_cast<std::byte*>(&sum), 1, DType::i32, 2);
  CHECK(sum == -3);
}

}  // namespace
}  // namespace pith::kernels::test
