// The rules of elections by threshold, on laws that are known.
#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "compress/thresholds/draw_key.hpp"
#include "compress/thresholds/fitted_threshold.hpp"
#include "compress/thresholds/sign_election.hpp"
#include "compress/thresholds/stage_control.hpp"
#include "compress/thresholds/sure_magnitude.hpp"
#include "kernels/sparse_scalar.hpp"
#include "tests/catch.hpp"

using namespace pith;

namespace {

constexpr std::size_t many = 200000;

// Evenly spread quantiles of a law, in a mixed-up order; `quantile` of a part that is exceeded.
template <class Quantile>
std::vector<float> spread(const Quantile& quantile) {
  std::vector<float> values(many);
  for (std::size_t i = 0; i < many; ++i) {
    const std::size_t place = i * 7919 % many;
    const double sign = i % 2 == 0 ? 1 : -1;
    values[i] = static_cast<float>(sign * quantile((double(place) + 0.5) / double(many)));
  }
  return values;
}
std::vector<float> exponential() {
  return spread([](double part) { return -0.01 * std::log(part); });
}
// Tails so heavy that the fourth moment is infinite.
std::vector<float> heavy() {
  return spread([](double part) { return 0.01 * (std::pow(part, -0.3) - 1); });
}
std::vector<float> uniform() {
  return spread([](double part) { return 1 - part; });
}

MagnitudeHistogram histogram_of(const std::vector<float>& values) {
  MagnitudeHistogram histogram;
  kernels::scalar::histogram({values.data(), values.size(), &histogram});
  return histogram;
}

double count_from(const std::vector<float>& values, float threshold) {
  return double(
      std::ranges::count_if(values, [&](float one) { return std::fabs(one) >= threshold; }));
}

double part_from(const std::vector<float>& values, float threshold) {
  return count_from(values, threshold) / double(values.size());
}

}  // namespace

TEST_CASE("sums of a tail are those of its elements") {
  for (const std::vector<float>& values : {exponential(), heavy(), uniform()}) {
    const MagnitudeHistogram histogram = histogram_of(values);
    for (const float threshold : {0.0f, 1e-6f, 0.003f, 0.0101f, 0.05f}) {
      TailSums plain;
      for (const float value : values) {
        const double magnitude = std::fabs(double(value));
        if (magnitude < double(threshold)) continue;
        ++plain.count;
        plain.sum += magnitude;
        plain.squares += magnitude * magnitude;
      }
      const TailSums found = tail_of(histogram, threshold);
      INFO(threshold);
      CHECK(found.count == Approx(plain.count).epsilon(0.02).margin(3));
      CHECK(found.sum == Approx(plain.sum).epsilon(0.02).margin(1e-3));
      CHECK(found.squares == Approx(plain.squares).epsilon(0.02).margin(1e-3));
    }
    const TailSums all = tail_of(histogram, 0);
    CHECK(all.count == double(many));
  }
}

TEST_CASE("a tail beyond all elements is empty, whatever the threshold") {
  const MagnitudeHistogram histogram = histogram_of({1.0f, -2.0f, 0.0f});
  CHECK(tail_of(histogram, 2.5f).count == 0);
  CHECK(tail_of(histogram, 3.4e38f).count == 0);
  CHECK(tail_of(histogram, INFINITY).count == 0);
  CHECK(tail_of(histogram, -1.0f).count == 3);
}

TEST_CASE("a threshold for a number of elements") {
  for (const std::vector<float>& values : {exponential(), heavy(), uniform()}) {
    const MagnitudeHistogram histogram = histogram_of(values);
    for (const double count : {20.0, 200.0, 20000.0, 150000.0}) {
      const float threshold = threshold_for(histogram, count);
      CHECK(count_from(values, threshold) == Approx(count).epsilon(0.03).margin(3));
    }
  }
  const MagnitudeHistogram few = histogram_of({1.0f, -2.0f, 0.0f, 0.0f});
  CHECK(threshold_for(few, 3) == 0);
  CHECK(threshold_for(few, 2) > 0);
}

TEST_CASE("a fitted threshold is right for its law, with any number of stages") {
  const std::vector<float> values = exponential();
  const MagnitudeHistogram histogram = histogram_of(values);
  for (const double density : {0.5, 0.1, 0.01, 0.001}) {
    for (const std::uint32_t stages : {1U, 2U, 4U, most_stages(density)}) {
      for (const TailLaw law : {TailLaw::exponential, TailLaw::pareto}) {
        INFO(density << ", " << stages << " stages");
        const float threshold = fitted_threshold(histogram, many, density, law, stages);
        CHECK(part_from(values, threshold) == Approx(density).epsilon(0.08));
      }
    }
  }
}

TEST_CASE("zeros count in the first stage") {
  std::vector<float> values = exponential();
  values.resize(2 * many);
  const float threshold =
      fitted_threshold(histogram_of(values), values.size(), 0.3, TailLaw::exponential, 1);
  CHECK(threshold == Approx(-0.005 * std::log(0.3)).epsilon(0.01));  // half of the mean
}

TEST_CASE("stages find the tail of another law") {
  const std::vector<float> values = heavy();
  const MagnitudeHistogram histogram = histogram_of(values);
  const auto part = [&](TailLaw law, std::uint32_t stages) {
    return part_from(values, fitted_threshold(histogram, many, 0.001, law, stages));
  };
  CHECK(part(TailLaw::exponential, 1) > 0.004);  // far too many
  CHECK(part(TailLaw::exponential, 3) == Approx(0.001).epsilon(0.3));
  CHECK(part(TailLaw::exponential, 8) < 0.0005);  // far too few
  CHECK(part(TailLaw::pareto, 2) == Approx(0.001).epsilon(0.3));
}

TEST_CASE("a fitted threshold elects no zeros, and something of equal magnitudes or nothing") {
  const MagnitudeHistogram zeros = histogram_of(std::vector<float>(1000));
  CHECK(fitted_threshold(zeros, 1000, 0.01, TailLaw::exponential, 3) > 0);
  CHECK(fitted_threshold(zeros, 1000, 0.01, TailLaw::pareto, 3) > 0);
  const MagnitudeHistogram alike = histogram_of(std::vector<float>(1000, -1.0f));
  for (const std::uint32_t stages : {1U, 3U, 7U}) {
    const float threshold = fitted_threshold(alike, 1000, 0.01, TailLaw::pareto, stages);
    CHECK(std::isfinite(threshold));
    CHECK(threshold > 0.9f);
  }
  const MagnitudeHistogram large = histogram_of({3e38f, -3e38f, 2e38f});
  CHECK(std::isfinite(fitted_threshold(large, 3, 0.001, TailLaw::exponential, 1)));
}

TEST_CASE("magnitudes that the law does not describe are elected by their count") {
  std::vector<float> values = uniform();
  for (float& value : values) value = 5 + std::fabs(value);
  const MagnitudeHistogram histogram = histogram_of(values);
  const MagnitudeHistogram one = histogram_of({-3.0f});
  for (const std::uint32_t stages : {1U, 3U, 7U}) {
    const float some = fitted_threshold(histogram, many, 0.01, TailLaw::exponential, stages);
    CHECK(part_from(values, some) == Approx(0.01).epsilon(0.1));
    CHECK(fitted_threshold(one, 1, 0.01, TailLaw::exponential, stages) <= 3);
    CHECK(fitted_threshold(one, 1, 0.01, TailLaw::pareto, stages) <= 3);
  }
}

TEST_CASE("as many elements are drawn as there are to be, on average") {
  for (const std::vector<float>& values : {exponential(), heavy(), uniform()}) {
    const MagnitudeHistogram histogram = histogram_of(values);
    for (const double k : {20.0, 2000.0, 100000.0}) {
      const double sure = sure_magnitude(histogram, k);
      double expected = 0;
      for (const float value : values) expected += std::min(std::fabs(double(value)) / sure, 1.0);
      CHECK(expected == Approx(k).epsilon(0.01));
    }
  }
}

TEST_CASE("ranks, tensors and steps draw apart") {
  std::set<std::uint64_t> keys;
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    for (std::uint64_t step = 0; step < 3; ++step) {
      for (std::size_t tensor = 0; tensor < 3; ++tensor) {
        for (int rank = 0; rank < 3; ++rank) keys.insert(draw_key(seed, step, tensor, rank));
      }
    }
  }
  CHECK(keys.size() == 81);
}

TEST_CASE("all elements are drawn where there are no more") {
  const std::vector<float> few = {0.0f, 1.0f, -2.0f, 0.0f, 1e-3f};
  for (const double k : {3.0, 4.0, 5.0}) {
    const float sure = sure_magnitude(histogram_of(few), k);
    CHECK(sure > 0);
    CHECK(sure < 2.0f);
  }
  CHECK(sure_magnitude(histogram_of(std::vector<float>(10)), 1) > 0);
  const float one = sure_magnitude(histogram_of({3.0f}), 1);
  CHECK(one == Approx(3).epsilon(1e-3));
}

TEST_CASE("the largest of each sign, and of equal ones the first") {
  const std::vector<float> values = {1, -5, 3, -5, 0, 2, -1, -5, 3, 3};
  std::vector<std::uint32_t> room(values.size());
  const auto elected = [&](std::size_t most) {
    SignElection election(values, most, room);
    std::vector<std::size_t> all;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (election.elects(values[i])) all.push_back(i);
    }
    return all;
  };
  CHECK(elected(2) == std::vector<std::size_t>{1, 2, 3, 8});
  CHECK(elected(4) == std::vector<std::size_t>{1, 2, 3, 5, 6, 7, 8, 9});
  CHECK(elected(100).size() == 9);
  const SignElection two(values, 2, room);
  CHECK(two.above().mean() == 3);
  CHECK(two.below().mean() == -5);
  CHECK(two.least() == 3);
  CHECK(two.is_full());
  CHECK_FALSE(SignElection(values, 5, room).is_full());
  const SignElection none({}, 3, {});
  CHECK(none.count() == 0);
  CHECK(none.least() == 0);
}

TEST_CASE("stages settle where the target is elected, with heavy tails and with none") {
  for (const std::vector<float>& values : {heavy(), uniform()}) {
    const MagnitudeHistogram histogram = histogram_of(values);
    constexpr double density = 0.01;
    StageControl control;
    double elected = 0;
    for (std::uint32_t call = 0; call < 10 * StageControl::calls_together; ++call) {
      const float threshold =
          fitted_threshold(histogram, many, density, TailLaw::exponential, control.stages);
      elected = part_from(values, threshold);
      control.saw(elected, density, most_stages(density));
    }
    CHECK(elected == Approx(density).epsilon(StageControl::tolerance));
  }
}

TEST_CASE("the number of stages follows what was elected") {
  StageControl control;
  const auto calls = [&](double ratio) {
    for (std::uint32_t i = 0; i < StageControl::calls_together; ++i) {
      control.saw(100 * ratio, 100, 7);
    }
    return control.stages;
  };
  CHECK(calls(1.1) == 1);
  CHECK(calls(0.85) == 1);
  CHECK(calls(4) == 2);
  CHECK(calls(2) == 3);    // better, but not there
  CHECK(calls(2.5) == 2);  // worse: back
  CHECK(calls(1.9) == 1);
  CHECK(calls(1.8) == 2);  // a limit turns it, too
  CHECK(calls(1) == 2);
  CHECK(calls(0) == 1);  // far off, and worse
}
