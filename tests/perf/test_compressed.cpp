// What the check of compressed calls rests on: its gradients, its plain top-k, its count of errors.
#include <algorithm>
#include <cmath>
#include <vector>

#include "frame/compressed_check.hpp"
#include "frame/gradients.hpp"
#include "frame/topk_reference.hpp"
#include "tests/catch.hpp"

namespace {

using namespace pith_perf;

}  // namespace

TEST_CASE("made-up gradients differ by rank, repeat, and have heavy tails", "[perf]") {
  const Gradients gradients("");
  constexpr std::size_t count = 200000;
  std::vector<float> one(count);
  std::vector<float> other(count);
  std::vector<float> again(count / 2);
  gradients.fill(one, 1);
  gradients.fill(other, 2);
  gradients.fill(again, 1);
  CHECK(std::equal(again.begin(), again.end(), one.begin()));
  CHECK(one != other);
  double squares = 0;
  double largest = 0;
  for (const float value : one) {
    squares += double(value) * double(value);
    largest = std::max(largest, std::abs(double(value)));
  }
  CHECK(largest / std::sqrt(squares / count) > 8);  // of a Gaussian's 200000 about 4.5
}

TEST_CASE("plain top-k takes the largest, of equal ones the first", "[perf]") {
  std::vector<float> sums = {1, -3, 2, 3, 0, -2, 2};
  const Pairs pairs = take_topk(sums, 4, pith::DType::f32);
  CHECK(pairs.indices == std::vector<std::uint32_t>{1, 2, 3, 5});
  CHECK(pairs.values == std::vector<float>{-3, 2, 3, -2});
  CHECK(sums == std::vector<float>{1, 0, 0, 0, 0, 0, 2});
}

TEST_CASE("plain top-k leaves what rounding loses", "[perf]") {
  std::vector<float> sums = {0.5F, 1 + 0x1p-10F};
  const Pairs pairs = take_topk(sums, 1, pith::DType::bf16);
  CHECK(pairs.values == std::vector<float>{1});
  CHECK(sums == std::vector<float>{0.5F, 0x1p-10F});
}

TEST_CASE("errors outside what is allowed are wrong, and so is no number", "[perf]") {
  Errors errors;
  errors.add(-0.5, 1);
  CHECK(errors.wrong == 0);
  errors.add(2, 1);
  errors.add(NAN, 1);
  CHECK(errors.wrong == 2);
  CHECK(std::isinf(errors.largest));
}
