// Momentum and draws: SIMD beside the scalar twins, bit for bit but for sums of squares.
#include "kernels/elections/elections.hpp"

#include "sparse_support.hpp"

using namespace pith;
using namespace pith::kernels;
using namespace pith::kernels::test;

namespace {

using Floats = std::vector<float>;
using Indices = std::vector<std::uint32_t>;

struct Drawn {
  Floats accumulator;
  Indices indices;
  Floats values;
  PassResult result;
};

Drawn drawn_from(void (*draw)(const DrawKernel::Args&), const Floats& from, float sure,
                 std::uint64_t key, std::uint32_t first) {
  Drawn drawn{from, Indices(from.size()), Floats(from.size()), {7, 7, 7}};
  draw({drawn.accumulator.data(), from.size(), sure, key, first, drawn.indices.data(),
        drawn.values.data(), &drawn.result});
  drawn.indices.resize(drawn.result.selected);
  drawn.values.resize(drawn.result.selected);
  return drawn;
}

// Finite, and some zeros.
Floats finite_floats(std::size_t count, unsigned seed) {
  Floats values = floats_of(Kind::normal, count, seed);
  for (std::size_t i = 0; i < count; i += 7) values[i] = 0;
  return values;
}

}  // namespace

TEST_CASE("velocities take momentum and gradient") {
  for_each_target([] {
    for (const DType type : value_types) {
      for (const Kind kind : all_kinds) {
        for (const std::size_t count : {0, 1, 5, 16, 63, 1000}) {
          for (const bool given : {true, false}) {
            const std::size_t at = count % 3;
            Floats plain = floats_of(kind, count, 1), fast = plain;
            const auto gradient = as_type(floats_of(kind, count, 2), type, at);
            const std::byte* const from = given ? gradient.data() + at : nullptr;
            scalar::correct_momentum({plain.data(), from, type, count, 0.9f, 0.5f});
            correct_momentum({fast.data(), from, type, count, 0.9f, 0.5f});
            INFO(name_of(type) << ", kind " << int(kind) << ", " << count << ", " << given);
            REQUIRE(same(plain, fast));
          }
        }
      }
    }
  });
}

TEST_CASE("a velocity that is not finite starts anew") {
  Floats velocity = {INFINITY, NAN, 2, -3};
  const Floats gradient = {1, 2, NAN, 4};
  scalar::correct_momentum({velocity.data(), reinterpret_cast<const std::byte*>(gradient.data()),
                            DType::f32, 4, 0.5f, 2});
  CHECK(velocity[0] == 2);
  CHECK(velocity[1] == 4);
  CHECK(std::isnan(velocity[2]));
  CHECK(velocity[3] == 6.5f);
}

TEST_CASE("draws are those of the scalar twin") {
  for_each_target([] {
    for (const std::size_t count : {0, 1, 5, 16, 63, 64, 1000, 10007}) {
      for (const float sure : {1e-3f, 1.0f, 20.0f, 3e38f}) {
        const Floats from = finite_floats(count, 3);
        const Drawn plain = drawn_from(scalar::draw, from, sure, 0x123456789abcdefULL, 77);
        const Drawn fast = drawn_from(draw, from, sure, 0x123456789abcdefULL, 77);
        INFO(count << " from " << sure);
        REQUIRE(plain.indices == fast.indices);
        REQUIRE(same(plain.values, fast.values));
        REQUIRE(same(plain.accumulator, fast.accumulator));
        REQUIRE(close(plain.result.squares, fast.result.squares));
      }
    }
  });
}

TEST_CASE("what is drawn has no bias, and is drawn as often as its size says") {
  constexpr std::size_t count = 1000;
  constexpr int rounds = 4000;
  const Floats from = finite_floats(count, 5);
  constexpr float sure = 2;
  std::vector<double> sums(count);
  double drawn_in_all = 0, expected_in_all = 0;
  for (int round = 0; round < rounds; ++round) {
    const Drawn drawn =
        drawn_from(draw, from, sure, 0x9E3779B97F4A7C15ULL * static_cast<unsigned>(round + 1), 0);
    drawn_in_all += double(drawn.indices.size());
    for (std::size_t i = 0; i < drawn.indices.size(); ++i) {
      sums[drawn.indices[i]] += double(drawn.values[i]);
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    const double size = std::fabs(double(from[i]));
    const double p = std::min(size / double(sure), 1.0);
    expected_in_all += p * rounds;
    const double deviation = double(sure) * std::sqrt(p * (1 - p) / rounds);
    CHECK(std::fabs(sums[i] / rounds - double(from[i])) <= 5 * deviation + 1e-6);
  }
  CHECK(drawn_in_all == Approx(expected_in_all).epsilon(0.005));
}
