// Exact selection in one pass, beside a stable sort.
#include "compress/topk_selector.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/host_compute.hpp"
#include "tests/catch.hpp"

namespace pith::test {

namespace {

struct Case {
  std::size_t count;
  double density;
  bool early;
  std::size_t range;   // elements a pass
  std::size_t rotate;  // the first pass begins here
};

// Elects from the sums as the definition says.
std::vector<float> elect(std::vector<float>& sums, std::size_t k) {
  std::vector<std::size_t> order(sums.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::fabs(sums[a]) > std::fabs(sums[b]);
  });
  std::vector<float> elected(sums.size());
  for (std::size_t i = 0; i < k; ++i) elected[order[i]] = std::exchange(sums[order[i]], 0.0f);
  return elected;
}

// A step; true where the forecast was good.
bool select(Compressor& compressor, HostCompute& host, const Case& c,
            const std::vector<float>& gradient, std::uint32_t call) {
  compressor.begin(call, {reinterpret_cast<const std::byte*>(gradient.data()), DType::f32});
  bool anew = true;
  {
    FrameArena frames;
    TopkSelector selector(compressor, VectorQueue(host, frames), elected_of(c.density, c.count),
                          c.early);
    for (std::size_t done = 0; done < c.count;) {
      const std::size_t at = (c.rotate + done) % c.count;
      const std::size_t n = std::min({c.range, c.count - at, c.count - done});
      selector.pass(at, n);
      done += n;
    }
    anew = selector.finish();
  }
  return !anew;
}

std::vector<float> taken_of(Compressor& compressor, std::size_t count, std::string& failure) {
  std::vector<float> out(count);
  PairList& taken = compressor.taken();
  for (std::size_t i = 0; i < taken.count(); ++i) {
    float value = 0;
    std::memcpy(&value, taken.values(i), sizeof value);
    if (std::exchange(out[taken.indices()[i]], value) != 0) failure = "an element came twice";
  }
  return out;
}

// Steps with the forecast's every fate: steady, jumps up and down, ties, zeros. Empty is good.
std::string run_beside_sort(const Case& c, std::uint32_t seed) {
  HostCompute host;
  const auto compressor = std::move(*Compressor::create(fmt::format("topk:density={}", c.density)));
  compressor->shape(c.count, DType::f32);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> sums(c.count);
  for (std::uint32_t step = 1; step <= 14; ++step) {
    const float jump = step == 5 ? 100.0f : step == 9 ? 0.01f : 1.0f;
    std::vector<float> gradient(c.count);
    for (float& value : gradient) value = jump * normal(random);
    if (step == 7) {
      for (float& value : gradient) value = value > 0 ? 1.0f : -1.0f;
    }
    if (step == 11) std::fill(gradient.begin(), gradient.end(), 0.0f);
    for (std::size_t i = 0; i < c.count; ++i) sums[i] += gradient[i];
    const std::vector<float> expected = elect(sums, elected_of(c.density, c.count));
    select(*compressor, host, c, gradient, step);
    std::string failure;
    if (taken_of(*compressor, c.count, failure) != expected) failure = "others were elected";
    const float* kept = compressor->accumulator();
    if (!std::equal(sums.begin(), sums.end(), kept)) failure = "another residual";
    if (!failure.empty()) {
      return fmt::format("count {}, density {}, early {}, range {}, rotate {}, step {}: {}",
                         c.count, c.density, c.early, c.range, c.rotate, step, failure);
    }
    compressor->end(host);
  }
  return {};
}

}  // namespace

TEST_CASE("the selector elects like a stable sort") {
  std::uint32_t seed = 1;
  for (const std::size_t count : {1, 2, 5, 64, 1000, 5003}) {
    for (const double density : {0.001, 0.01, 0.2, 1.0}) {
      for (const bool early : {false, true}) {
        for (const std::size_t range : {7, 1000, 100000}) {
          if (range == 7 && count > 1000) continue;
          CHECK(run_beside_sort({count, density, early, range, 0}, seed++) == "");
          CHECK(run_beside_sort({count, density, early, range, count / 3}, seed++) == "");
        }
      }
    }
  }
}

TEST_CASE("survivors of a forecast far too low, more than there is room for") {
  for (const bool early : {false, true}) {
    CHECK(run_beside_sort({200'000, 0.001, early, 100'000, 0}, 1) == "");
  }
}

TEST_CASE("forecasts are good in the steady state") {
  HostCompute host;
  const Case c{20000, 0.01, true, 4096, 0};
  const auto compressor = std::move(*Compressor::create("topk:density=0.01"));
  compressor->shape(c.count, DType::f32);
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  int good = 0;
  constexpr std::uint32_t steps = 200;
  for (std::uint32_t step = 1; step <= steps; ++step) {
    std::vector<float> gradient(c.count);
    for (float& value : gradient) value = normal(random);
    const bool hit = select(*compressor, host, c, gradient, step);
    good += step > steps / 2 && hit ? 1 : 0;
    compressor->end(host);
  }
  CHECK(good >= 90);  // of 100
}

}  // namespace pith::test
