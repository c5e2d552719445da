// What is learnt of a link from noisy times, and how soon a change is.
#include "model/link_estimate.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "model/nominal.hpp"
#include "tests/catch.hpp"
#include "tests/model/noise.hpp"

namespace pith::test {

namespace {

struct Link {
  double alpha = 0;
  double beta = 0;
  double seconds(std::size_t bytes) const { return alpha + beta * static_cast<double>(bytes); }
};

double error(const Estimated& estimate, double truth) {
  return std::abs(estimate.value / truth - 1);
}
double error(const LinkEstimate& estimate, const Link& link) {
  return std::max(error(estimate.alpha(), link.alpha), error(estimate.beta(), link.beta));
}

// Transfers of all sizes; or all of one.
void pass(LinkEstimate& estimate, const Link& link, Noise& noise, int count) {
  for (int i = 0; i < count; ++i) {
    const std::size_t bytes = noise.bytes();
    estimate.add(bytes, noise.of(link.seconds(bytes)));
  }
}
void pass(LinkEstimate& estimate, const Link& link, Noise& noise, int count, std::size_t bytes) {
  for (int i = 0; i < count; ++i) estimate.add(bytes, noise.of(link.seconds(bytes)));
}

constexpr std::size_t mib = std::size_t{1} << 20;
constexpr Link wire{20e-6, 0.8e-9};

// Every second transfer shows a change of alpha, every second one of beta.
std::size_t alternating(int i) {
  constexpr std::size_t sizes[] = {8, mib, 1024, 8 * mib, 64, 64 * mib, 8192, 4 * mib};
  return sizes[i % 8];
}

struct Change {
  Link to;
  LinkStep step;
};

struct Found {
  int after = 0;  // samples
  LinkStep step = LinkStep::none;
  double error = 0;  // 20 samples later
};

Found change(std::uint64_t seed, double late, const Link& to) {
  LinkEstimate estimate(nominal::wire);
  Noise noise(seed, 0.05, late);
  for (int i = 0; i < 1000; ++i) {
    estimate.add(alternating(i), noise.of(wire.seconds(alternating(i))));
  }
  Found found;
  for (int i = 0; i < 1000 && (found.after == 0 || i < found.after + 20); ++i) {
    const LinkStep step = estimate.add(alternating(i), noise.of(to.seconds(alternating(i))));
    if (found.after == 0 && step != LinkStep::none) {
      found.after = i + 1;
      found.step = step;
    }
  }
  found.error = error(estimate, to);
  return found;
}

// Of 200 links that change in such a way, how many are not found within 10 samples, as what they
// are, and known within 10 % after 20 more.
int missed(double late, const Change& expected) {
  int count = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const Found found = change(seed, late, expected.to);
    if (found.after == 0 || found.after > 10 || found.step != expected.step || found.error > 0.1) {
      ++count;
    }
  }
  return count;
}

std::uint64_t steps_found(double log_sd, double late, std::uint64_t seed) {
  LinkEstimate estimate(nominal::wire);
  Noise noise(seed, log_sd, late);
  pass(estimate, wire, noise, 1'000'000);
  return estimate.steps();
}

}  // namespace

TEST_CASE("alpha and beta are found under noise and late samples", "[link]") {
  const Link link = GENERATE(Link{3e-6, 0.09e-9}, Link{200e-6, 10e-9}, Link{20e-3, 1e-12});
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    LinkEstimate estimate(nominal::wire);
    Noise noise(seed, 0.1, 0.05);
    pass(estimate, link, noise, 1000);
    CHECK(error(estimate.alpha(), link.alpha) < 0.05);
    CHECK(estimate.alpha().log_sd < 0.02);
    if (link.beta < 1e-11) continue;  // the longest transfer does not show it
    CHECK(error(estimate.beta(), link.beta) < 0.05);
    CHECK(estimate.beta().log_sd < 0.02);
  }
}

TEST_CASE("what is not known is told", "[link]") {
  int outside = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    LinkEstimate estimate(nominal::wire);
    Noise noise(seed, 0.1, 0);
    pass(estimate, {3e-6, 0.09e-9}, noise, 30);
    const auto far = [](const Estimated& one, double truth) {
      return std::abs(std::log(one.value / truth)) > 2 * one.log_sd;
    };
    outside += far(estimate.alpha(), 3e-6) + far(estimate.beta(), 0.09e-9);
  }
  CHECK(outside < 40);  // of 400; 5 % if noise and estimate were normal
}

TEST_CASE("of samples of one size the nominal values divide the time", "[link]") {
  const Link link{3e-6, 0.09e-9};
  LinkEstimate estimate(nominal::wire);
  Noise noise(1, 0.1, 0);
  SECTION("short: beta stays open") {
    pass(estimate, link, noise, 100'000, 8);
    CHECK(error(estimate.alpha(), link.alpha) < 0.03);
    CHECK(error(estimate.beta(), nominal::wire.beta) < 0.05);
    CHECK(estimate.beta().log_sd > 1.4);
  }
  SECTION("long: alpha stays open") {
    pass(estimate, link, noise, 100'000, 64 * mib);
    CHECK(error(estimate.beta(), link.beta) < 0.03);
    CHECK(error(estimate.alpha(), nominal::wire.alpha) < 0.05);
    CHECK(estimate.alpha().log_sd > 1.4);
  }
  SECTION("between: the sum is known, its parts are not") {
    const std::size_t bytes = 32768;
    pass(estimate, link, noise, 100'000, bytes);
    CHECK(error(estimate.seconds(bytes), link.seconds(bytes)) < 0.03);
    CHECK(estimate.seconds(bytes).log_sd < 0.02);
    CHECK(std::max(estimate.alpha().log_sd, estimate.beta().log_sd) > 0.3);
  }
}

TEST_CASE("long transfers do not forget what short ones told", "[link]") {
  LinkEstimate estimate(nominal::wire);
  Noise noise(1, 0.1, 0);
  const Link link{3e-6, 0.09e-9};
  pass(estimate, link, noise, 1000);
  pass(estimate, link, noise, 100'000, 64 * mib);
  CHECK(error(estimate.alpha(), link.alpha) < 0.05);
  CHECK(estimate.alpha().log_sd < 0.03);
}

TEST_CASE("a slow change is followed without a step", "[link]") {
  LinkEstimate estimate(nominal::wire);
  Noise noise(1, 0.1, 0);
  Link link = wire;
  for (int i = 0; i < 200; ++i) {  // to 2.7 times the time in all
    link.alpha *= 1.005;
    link.beta *= 1.005;
    pass(estimate, link, noise, 100);
    if (i >= 10) CHECK(error(estimate, link) < 0.07);
  }
  CHECK(estimate.steps() == 0);
}

TEST_CASE("a step of latency or bandwidth is found within 10 samples", "[link]") {
  const auto [to, step] = GENERATE(
      Change{{200e-6, 0.8e-9}, LinkStep::latency}, Change{{2e-6, 0.8e-9}, LinkStep::latency},
      Change{{20e-6, 3.2e-9}, LinkStep::bandwidth}, Change{{20e-6, 0.2e-9}, LinkStep::bandwidth});
  CHECK(missed(0, {to, step}) == 0);
  // A late sample in between hides that others are early.
  const bool slower = to.alpha > wire.alpha || to.beta > wire.beta;
  CHECK(missed(0.05, {to, step}) <= (slower ? 4 : 20));
}

TEST_CASE("noise is not taken for a step", "[link]") {
  CHECK(steps_found(0.1, 0, 1) == 0);
  CHECK(steps_found(0.3, 0, 2) == 0);
  // Five late samples in a row are one, and come about once in a million of which 5 % are late.
  CHECK(steps_found(0.1, 0.01, 3) == 0);
  CHECK(steps_found(0.1, 0.05, 4) <= 4);
}

TEST_CASE("times without noise are fitted closely", "[link]") {
  LinkEstimate estimate(nominal::memory);
  Noise noise(1, 0, 0);
  pass(estimate, wire, noise, 300);
  CHECK(error(estimate, wire) < 0.001);
  CHECK(estimate.steps() == 0);
}

TEST_CASE("absurd times leave a link that is finite", "[link]") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  LinkEstimate estimate(nominal::wire);
  for (const double seconds : {0.0, -1.0, nan, infinity}) {
    CHECK(estimate.add(8, seconds) == LinkStep::none);
  }
  CHECK(estimate.samples() == 0);
  Noise noise(1, 0, 0);
  for (int i = 0; i < 100'000; ++i) {
    // Any size takes any time, from a picosecond to hours, for a while or each its own.
    Noise time(static_cast<std::uint64_t>(i / (1 + i % 50)), 20, 0);
    estimate.add(i % 7 == 0 ? 0 : noise.bytes(), time.of(1e-6));
    const Estimated alpha = estimate.alpha();
    const Estimated beta = estimate.beta();
    const bool sound = alpha.value > 0 && beta.value > 0 && alpha.log_sd > 0 && beta.log_sd > 0 &&
                       std::isfinite(alpha.value + beta.value + alpha.log_sd + beta.log_sd);
    if (!sound) FAIL("after sample " << i);
  }
}

}  // namespace pith::test
