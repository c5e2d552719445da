// Values coded in blocks: SIMD beside the scalar twins, and what a coding promises.
#include "kernels/coded_values.hpp"

#include "core/mix.hpp"
#include "kernels/coded/dynamic_map.hpp"
#include "kernels/coded_block.hpp"
#include "kernels/scalar.hpp"
#include "sparse_support.hpp"

using namespace pith;
using namespace pith::kernels;
using namespace pith::kernels::test;

namespace {

using ByteVector = std::vector<std::byte>;
using Floats = std::vector<float>;
constexpr CodingInput some_input = {3, 0x123456789abcdef0u, 4'000'000'000u};
constexpr std::byte untouched{0x5a};

std::vector<Coding> all_codings() {
  using enum Coding::Kind;
  std::vector<Coding> codings;
  for (const int bits : {2, 4, 8}) {
    for (const bool draws : {false, true}) {
      codings.push_back({levels, static_cast<std::uint8_t>(bits), draws, 256});
    }
  }
  codings.push_back({levels, 4, true, 4096});
  codings.push_back({powers, 8, false, 512});
  codings.push_back({powers, 8, true, 512});
  codings.push_back({signs, 1, false, 1024});
  codings.push_back({.kind = levels, .bits = 2, .draws = true, .block = 512, .clip = 2.5F});
  codings.push_back({.kind = levels, .bits = 8, .draws = false, .block = 256, .clip = 1.01F});
  codings.push_back({mean_signs, 1, false, 1024});
  codings.push_back({two_means, 1, false, 1024});
  for (const float sparsity : {1.0F, 1.75F}) {
    codings.push_back({.kind = ternary, .block = 1024, .sparsity = sparsity});
  }
  codings.push_back({e4m3, 8, false, 256});
  codings.push_back({e5m2, 8, false, 256});
  codings.push_back({f16, 16, false, 256});
  codings.push_back({dynamic, 8, false, 256});
  codings.push_back({bf16, 16, false, 64});
  return codings;
}

// Runs `body` for every coding, kind of values and some lengths, on every SIMD target.
template <class Body>
void for_each_vector(Body body) {
  for_each_target([&] {
    for (const Coding& coding : all_codings()) {
      for (const Kind kind : all_kinds) {
        for (const std::size_t count : {0, 1, 15, 16, 17, 127, 256, 300, 1024, 9001}) {
          INFO("kind " << int(coding.kind) << " bits " << int(coding.bits) << " draws "
                       << coding.draws << " values " << int(kind) << " count " << count);
          body(coding, kind, count);
        }
      }
    }
  });
}

ByteVector room(std::size_t bytes, std::size_t shift) {
  return ByteVector(bytes + shift + 16, untouched);
}

ByteVector encoded(const Coding& coding, const Floats& values,
                   const CodingInput& input = some_input) {
  ByteVector out(coding.bytes(values.size()));
  scalar::encode_values({coding, input, values.data(), values.size(), out.data()});
  return out;
}

Floats decoded(const Coding& coding, const ByteVector& coded, std::size_t count) {
  Floats values(count);
  scalar::decode_values(
      {coding, coded.data(), count, reinterpret_cast<std::byte*>(values.data()), DType::f32, 1});
  return values;
}

}  // namespace

TEST_CASE("values are coded as the twin does") {
  for_each_vector([](const Coding& coding, Kind kind, std::size_t count) {
    const std::size_t shift = count % 4;
    const Floats values = floats_of(kind, count, 1);
    ByteVector plain = room(coding.bytes(count), shift), fast = plain;
    scalar::encode_values({coding, some_input, values.data(), count, plain.data() + shift});
    encode_values({coding, some_input, values.data(), count, fast.data() + shift});
    REQUIRE(plain == fast);
  });
}

TEST_CASE("coded values are read as the twin does") {
  for_each_vector([](const Coding& coding, Kind kind, std::size_t count) {
    const std::size_t shift = count % 3;
    ByteVector coded = encoded(coding, floats_of(kind, count, 2));
    coded.insert(coded.begin(), shift, untouched);
    const Floats given = floats_of(Kind::normal, count, 3);
    for (const DType type : value_types) {
      for (const float divisor : {1.0f, 3.0f, -1.0f}) {
        const float* const instead = divisor < 0 ? given.data() : nullptr;
        ByteVector plain = room(count * size_of(type), shift), fast = plain;
        scalar::decode_values(
            {coding, coded.data() + shift, count, plain.data() + shift, type, divisor, instead});
        decode_values(
            {coding, coded.data() + shift, count, fast.data() + shift, type, divisor, instead});
        for (ByteVector* out : {&plain, &fast}) {
          out->erase(out->begin(), out->begin() + static_cast<std::ptrdiff_t>(shift));
          REQUIRE((*out)[count * size_of(type)] == untouched);
          out->resize(count * size_of(type));
        }
        REQUIRE(same_values(plain, fast, type));
      }
    }
  });
}

TEST_CASE("coded sums are those of the twin; the output may be an input") {
  for_each_vector([](const Coding& coding, Kind kind, std::size_t count) {
    for (const std::size_t n : {1, 2, 5}) {
      std::vector<ByteVector> plain_in, fast_in;
      for (std::size_t k = 0; k < n; ++k) {
        plain_in.push_back(encoded(coding, floats_of(kind, count, static_cast<unsigned>(k))));
      }
      fast_in = plain_in;
      const auto args = [&](std::vector<ByteVector>& in, std::vector<const std::byte*>& pointers) {
        for (const ByteVector& one : in) pointers.push_back(one.data());
        return SumCodedKernel::Args{coding,          some_input, in[n - 1].data(),
                                    pointers.data(), n,          count};
      };
      std::vector<const std::byte*> plain_pointers, fast_pointers;
      scalar::sum_coded(args(plain_in, plain_pointers));
      sum_coded(args(fast_in, fast_pointers));
      REQUIRE(plain_in == fast_in);
    }
  });
}

TEST_CASE("a rank's own values enter a sum as they are, and keep what coding loses") {
  for_each_vector([](const Coding& coding, Kind kind, std::size_t count) {
    if (coding.kind == Coding::Kind::bf16) return;
    const ByteVector other = encoded(coding, floats_of(kind, count, 1));
    const ByteVector unmarked = encoded(coding, Floats(count));
    const std::byte* const in[] = {other.data(), unmarked.data(), other.data()};
    Floats plain = floats_of(kind, count, 2), fast = plain;  // the change takes their place
    ByteVector plain_out(coding.bytes(count)), fast_out = plain_out;
    scalar::sum_coded(
        {coding, some_input, plain_out.data(), in, 3, count, plain.data(), plain.data(), 1});
    sum_coded({coding, some_input, fast_out.data(), in, 3, count, fast.data(), fast.data(), 1});
    REQUIRE(plain_out == fast_out);
    REQUIRE(same(plain, fast));
    const Floats own = floats_of(kind, count, 2);
    const Floats coded = decoded(coding, other, count), result = decoded(coding, plain_out, count);
    for (std::size_t i = 0; i < count; ++i) {
      const float sum = own[i] + coded[i] + coded[i];
      const float expected = std::isfinite(result[i]) ? (sum - result[i]) - own[i] : -own[i];
      REQUIRE((fast[i] == expected || std::isnan(expected)));
    }
  });
}

// Though it is not decoded.
TEST_CASE("the mark of a rank's own values is passed on") {
  for (const Coding& coding : all_codings()) {
    if (coding.kind == Coding::Kind::bf16) continue;
    const ByteVector other = encoded(coding, Floats(20, 1));
    const ByteVector marked(coding.bytes(20), std::byte{0xff});
    const std::byte* const in[] = {other.data(), marked.data()};
    ByteVector out(coding.bytes(20));
    Floats own(20, 1);
    for_each_target([&] {
      sum_coded({coding, some_input, out.data(), in, 2, 20, own.data(), own.data(), 1});
      CHECK(out == marked);
    });
  }
}

TEST_CASE("signs with the mean magnitude of their block") {
  const Coding coding{Coding::Kind::mean_signs, 1, false, 128};
  Floats values = floats_of(Kind::normal, 300, 6);
  const Floats back = decoded(coding, encoded(coding, values), 300);
  for (std::size_t begin = 0; begin < 300; begin += 128) {
    const std::size_t end = std::min<std::size_t>(begin + 128, 300);
    double sum = 0;
    for (std::size_t i = begin; i < end; ++i) sum += std::fabs(double(values[i]));
    const double mean = sum / double(end - begin);
    for (std::size_t i = begin; i < end; ++i) {
      CHECK(std::fabs(double(back[i]) - std::copysign(mean, double(values[i]))) < 1e-5 * mean);
    }
  }
}

TEST_CASE("two means, of the values from zero on and of those below") {
  const Coding coding{Coding::Kind::two_means, 1, false, 128};
  Floats values = floats_of(Kind::normal, 300, 6);
  values[7] = -0.0F;
  std::fill(values.begin() + 128, values.begin() + 256, -2.0F);  // none from zero on
  const Floats back = decoded(coding, encoded(coding, values), 300);
  for (std::size_t begin = 0; begin < 300; begin += 128) {
    const std::size_t end = std::min<std::size_t>(begin + 128, 300);
    double sums[2] = {0, 0};
    int counts[2] = {0, 0};
    for (std::size_t i = begin; i < end; ++i) {
      sums[values[i] < 0] += double(values[i]);
      ++counts[values[i] < 0];
    }
    for (std::size_t i = begin; i < end; ++i) {
      const double mean = sums[values[i] < 0] / counts[values[i] < 0];
      CHECK(std::fabs(double(back[i]) - mean) < 1e-5 * std::fabs(mean));
    }
  }
}

TEST_CASE("magnitudes beyond the clip are cut off, by their block's root mean square") {
  for (const std::uint8_t bits : {std::uint8_t{2}, std::uint8_t{8}}) {
    const Coding coding{
        .kind = Coding::Kind::levels, .bits = bits, .draws = true, .block = 512, .clip = 2.5F};
    Floats values = floats_of(Kind::normal, 1024, 3);
    values[5] = -40;
    std::fill(values.begin() + 512, values.end(), 3.0F);  // nothing is far from its mean
    double squares = 0;
    for (std::size_t i = 0; i < 512; ++i) squares += double(values[i]) * double(values[i]);
    const double most = 2.5 * std::sqrt(squares / 512);
    const Floats back = decoded(coding, encoded(coding, values), 1024);
    CHECK(double(back[5]) == Approx(-most));
    for (std::size_t i = 0; i < 512; ++i) {
      const double clipped = std::clamp(double(values[i]), -most, most);
      CHECK(std::fabs(double(back[i]) - clipped) <= most / last_level(bits) * 1.00001);
    }
    CHECK(std::count(back.begin() + 512, back.end(), 3.0F) == 512);
  }
}

TEST_CASE("ternary values are the nearest of minus the scale, zero and the scale") {
  for (const float sparsity : {1.0F, 1.9F}) {
    const Coding coding{.kind = Coding::Kind::ternary, .block = 1024, .sparsity = sparsity};
    CHECK(coding.bytes(1024) == 4 + 208);
    Floats values = floats_of(Kind::normal, 1000, 4);
    values[100] = 4;
    const float scale = sparsity * 4;
    const Floats back = decoded(coding, encoded(coding, values), 1000);
    for (std::size_t i = 0; i < 1000; ++i) {
      const bool rounds_up = std::fabs(values[i]) > scale / 2;
      CHECK(back[i] == (rounds_up ? std::copysign(scale, values[i]) : 0.0F));
    }
  }
}

TEST_CASE("float16 numbers travel as they are, and others nearly") {
  const Coding coding{Coding::Kind::f16, 16, false, 256};
  Floats halves;
  for (std::uint32_t code = 0; code < 0x10000; ++code) {
    const float value = scalar::decode<Float16>(static_cast<std::uint16_t>(code));
    if (std::isfinite(value)) halves.push_back(value);
  }
  std::shuffle(halves.begin(), halves.end(), std::mt19937_64(3));
  CHECK(decoded(coding, encoded(coding, halves), halves.size()) == halves);
  for (const float largest : {3e38f, 65535.9f, 1.0f, 1e-20f, 1e-37f}) {
    const Floats values = {largest, -0.3f * largest, 1e-3f * largest, 1e-8f * largest};
    const ByteVector coded = encoded(coding, values);
    for_each_target([&] {
      ByteVector fast(coded.size());
      encode_values({coding, some_input, values.data(), values.size(), fast.data()});
      CHECK(fast == coded);
    });
    const Floats back = decoded(coding, coded, values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float allowed = std::fabs(values[i]) * 0x1p-11f + largest * 0x1p-40f;
      CHECK(std::fabs(back[i] - values[i]) <= allowed);
    }
  }
}

TEST_CASE("the dynamic map is a tree of seven decades") {
  const auto& numbers = dynamic_numbers;
  CHECK(std::is_sorted(numbers.begin(), numbers.end()));
  CHECK(std::adjacent_find(numbers.begin(), numbers.end()) == numbers.end());
  CHECK(numbers[255] == 1);
  CHECK(numbers[127] == 0);
  CHECK(numbers[0] == -numbers[254]);
  CHECK(double{numbers[254]} == Approx(0.99296875));
  CHECK(double{numbers[128]} == Approx(5.5e-7));
  CHECK(double{numbers[127 + 2]} == Approx(0.325e-5));  // two numbers from 1e-6 to 1e-5
  CHECK(double{numbers[127 + 3]} == Approx(0.775e-5));
  // As by the formula, one number after the other, in float64.
  int k = 1;
  for (int decade = 0; decade < 7; ++decade) {
    const int parts = 1 << decade;
    for (int j = 0; j < parts; ++j, ++k) {
      const double centre = 0.1 + 0.9 * (j + 0.5) / parts;
      const double expected = std::pow(10, decade - 6) * centre;
      CHECK(double{DynamicMap::magnitude(k)} == Approx(expected).epsilon(2e-7));
    }
  }
}

TEST_CASE("values beside the middle between two numbers go to the nearer one") {
  const Coding coding{Coding::Kind::dynamic, 8, false, 1024};
  Floats values = {1};
  for (int k = 1; k <= DynamicMap::last; ++k) {
    const float middle = (DynamicMap::magnitude(k - 1) + DynamicMap::magnitude(k)) / 2;
    const float before = std::nextafter(middle, 0.0f);
    const float after = std::nextafter(middle, 2.0f);
    for (const float value : {std::nextafter(before, 0.0f), before, middle, after,
                              std::nextafter(after, 2.0f), DynamicMap::magnitude(k)}) {
      values.push_back(value);
      values.push_back(-value);
    }
  }
  const Floats back = decoded(coding, encoded(coding, values), values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float distance = std::fabs(back[i] - values[i]);
    for (const float number : dynamic_numbers) {
      REQUIRE(distance <= std::fabs(number - values[i]));
    }
  }
  for_each_target([&] {
    ByteVector fast(coding.bytes(values.size()));
    encode_values({coding, some_input, values.data(), values.size(), fast.data()});
    CHECK(fast == encoded(coding, values));
  });
}

TEST_CASE("any bytes can be decoded") {
  std::mt19937_64 random(5);
  for (const Coding& coding : all_codings()) {
    constexpr std::size_t count = 700;
    ByteVector coded(coding.bytes(count));
    for (std::byte& byte : coded) byte = static_cast<std::byte>(random());
    const Floats plain = decoded(coding, coded, count);
    for_each_target([&] {
      Floats fast(count);
      decode_values(
          {coding, coded.data(), count, reinterpret_cast<std::byte*>(fast.data()), DType::f32, 1});
      REQUIRE(same(plain, fast));
    });
  }
}

TEST_CASE("a value that is not finite makes its block NaN, and no other") {
  for (const Coding& coding : all_codings()) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
      if (coding.kind == Coding::Kind::bf16) continue;
      const std::size_t block = coding.block;
      Floats values = floats_of(Kind::normal, 2 * block + 5, 1);
      values[block + 3] = bad;
      const Floats back = decoded(coding, encoded(coding, values), values.size());
      for (std::size_t i = 0; i < back.size(); ++i) {
        REQUIRE(std::isnan(back[i]) == (i / block == 1));
      }
    }
  }
}

TEST_CASE("levels round to the nearest; the largest magnitude has the last one") {
  const Coding coding{Coding::Kind::levels, 8, false, 256};
  Floats values = floats_of(Kind::normal, 256, 3);
  values[17] = -12.7f;
  const Floats back = decoded(coding, encoded(coding, values), values.size());
  constexpr float step = 12.7f / 127;
  CHECK(back[17] == -12.7f);
  for (std::size_t i = 0; i < values.size(); ++i) {
    CHECK(std::fabs(back[i] - values[i]) <= step / 2 * 1.0001f);
  }
}

// Over many keys the mean comes within five standard deviations of the value.
TEST_CASE("what is drawn has no bias") {
  constexpr int keys = 4000;
  for (const Coding& coding : all_codings()) {
    if (!coding.draws) continue;
    const Floats values = {1.3f, -0.7f, 0.33f, 0.05f, -0.001f, 1e-6f, 0, 0.4999f};
    std::vector<double> sums(values.size()), squares(values.size());
    for (int key = 0; key < keys; ++key) {
      const CodingInput input = {1, std::uint64_t(key) * 0x9E3779B97F4A7C15u, 77};
      const Floats back = decoded(coding, encoded(coding, values, input), values.size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        sums[i] += double(back[i]);
        squares[i] += double(back[i]) * double(back[i]);
      }
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double mean = sums[i] / keys;
      const double variance = std::max(squares[i] / keys - mean * mean, 0.0);
      // At least one draw in the whole of them may be missing where hardly any goes up.
      const double allowed = 5 * std::sqrt(variance / keys) + 2e-3 * std::fabs(values[i]) + 1e-5;
      INFO("kind " << int(coding.kind) << " bits " << int(coding.bits) << " value " << values[i]);
      CHECK(std::fabs(mean - double(values[i])) <= allowed);
    }
  }
}

// The largest magnitude may be rounded up: the sum of 7 and the largest number drawn is 8.
TEST_CASE("no draw leads beyond the last level") {
  const std::uint64_t key = mix(1, 7);
  std::uint32_t index = 0;
  while (drawn_bits(key, index) >> 8 != 0xffffff) ++index;
  const CodingInput input = {1, key, index};
  for (const std::uint8_t bits : {std::uint8_t{2}, std::uint8_t{4}}) {
    const Coding coding{Coding::Kind::levels, bits, true, 256};
    const Floats one = {1};
    ByteVector coded(coding.bytes(1));
    CHECK(decoded(coding, encoded(coding, one, input), 1) == one);
    for_each_target([&] {
      encode_values({coding, input, one.data(), 1, coded.data()});
      CHECK(decoded(coding, coded, 1) == one);
    });
  }
}

TEST_CASE("draws of neighbours, and of keys, are independent") {
  constexpr int n = 1 << 16;
  constexpr int five_deviations = 5 * 128;
  for (const unsigned bit : {31u, 24u, 9u, 8u}) {
    int ones = 0, along = 0, across = 0;
    for (std::uint32_t i = 0; i < n; ++i) {
      const std::uint32_t own = drawn_bits(mix(1, 7), i) >> bit;
      ones += static_cast<int>(own & 1);
      along += static_cast<int>((own ^ drawn_bits(mix(1, 7), i + 1) >> bit) & 1);
      across += static_cast<int>((own ^ drawn_bits(mix(1, 8), i) >> bit) & 1);
    }
    for (const int count : {ones, along, across}) CHECK(std::abs(count - n / 2) < five_deviations);
  }
}

TEST_CASE("powers of two within a factor of two, signs with the given scale") {
  const Floats values = floats_of(Kind::all_sizes, 512, 4);
  const Coding powers{Coding::Kind::powers, 8, true, 512};
  const float largest = std::fabs(*std::max_element(
      values.begin(), values.end(), [](float a, float b) { return std::fabs(a) < std::fabs(b); }));
  const Floats back = decoded(powers, encoded(powers, values), values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::fabs(values[i]) < largest * 0x1p-120f) continue;  // may be zero
    CHECK(back[i] / values[i] > 0.5f);
    CHECK(back[i] / values[i] < 2);
  }
  const Coding signs{Coding::Kind::signs, 1, false, 1024};
  const Floats bare = decoded(signs, encoded(signs, {2, -0.5f, 1e-40f}), 3);
  CHECK(bare == Floats{3, -3, 3});
}

TEST_CASE("half of all zeros count as negative, each at some time") {
  const Coding signs{Coding::Kind::signs, 1, false, 1024};
  Floats sums(4096);
  for (std::uint64_t step = 0; step < 100; ++step) {
    const Floats bare =
        decoded(signs, encoded(signs, Floats(4096, -0.0f), {1, mix(1, step), 5}), 4096);
    float sum = 0;
    for (std::size_t i = 0; i < bare.size(); ++i) {
      sum += bare[i];
      sums[i] += bare[i];
    }
    CHECK(std::fabs(sum) < 5 * 64);
  }
  for (const float sum : sums) CHECK(std::fabs(sum) < 60);
}

TEST_CASE("a mark is passed on by sums, an overflow is none") {
  for (const Coding& coding : all_codings()) {
    if (coding.kind == Coding::Kind::bf16) continue;
    const std::size_t count = 2 * coding.block + 3;
    const ByteVector huge = encoded(coding, Floats(count, 3e38f), {3e38f, 1, 0});
    ByteVector marked = huge;
    std::fill(marked.begin(),
              marked.begin() + static_cast<std::ptrdiff_t>(coding.bytes(coding.block)),
              std::byte{0xff});
    ByteVector out(coding.bytes(count));
    const std::byte* const in[] = {huge.data(), marked.data()};
    const auto first_scale = [&] {
      std::uint32_t scale = 0;
      std::memcpy(&scale, out.data(), sizeof scale);
      return scale;
    };
    for_each_target([&] {
      sum_coded({coding, {std::numeric_limits<float>::infinity(), 1, 0}, out.data(), in, 2, count});
      CHECK(first_scale() == Coding::marked_scale);
      const std::byte* const both[] = {huge.data(), huge.data()};
      sum_coded({coding, {1, 1, 0}, out.data(), both, 2, count});
      CHECK(first_scale() != Coding::marked_scale);
      CHECK((coding.kind == Coding::Kind::signs || std::isnan(decoded(coding, out, 1)[0])));
    });
  }
}
