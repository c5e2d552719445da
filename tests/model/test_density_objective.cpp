// objective=paper: the density that AR-Topk's authors would choose, by their formula written out
// here once more.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/density_choice.hpp"
#include "model/model.hpp"
#include "tests/catch.hpp"

namespace pith::test {

namespace {

constexpr int ranks = 8;
constexpr double ms = 1e-3;
constexpr double ring_of_gbps(double gbps) { return 8 / (gbps * 1e9); }

// Parameters of the models in the paper's tables, and a gain at each of its densities that is made
// up: it depends on the training.
struct Training {
  const char* name;
  std::size_t parameters;
  std::array<double, 5> gains;  // at 0.001, 0.004, 0.011, 0.033, 0.1
};
const Training trainings[] = {
    {"ResNet18", 11'689'512, {0.12, 0.22, 0.35, 0.55, 0.80}},
    {"ResNet50", 25'557'032, {0.30, 0.42, 0.55, 0.70, 0.85}},
    {"AlexNet", 61'100'840, {0.05, 0.15, 0.50, 0.85, 0.97}},
    {"ViT", 133'000'000, {0.60, 0.66, 0.72, 0.80, 0.90}},
    {"flat", 1'000'000, {0.001, 0.004, 0.011, 0.033, 0.1}},
};
constexpr std::array<double, 5> authors = {0.001, 0.004, 0.011, 0.033, 0.1};

DensityFacts facts_of(const std::array<double, 5>& gains) {
  DensityFacts facts;
  std::copy(gains.begin(), gains.end(), facts.gains.begin());
  facts.between_s = 0.06;  // no term of the paper's
  return facts;
}

// minimise max(weight * t', (1 - weight) * g'), where t' and g' are time and 1 / gain, scaled by
// the least and the most of all: here every density is on the front. The second value says by how
// much the next best is worse.
struct Chosen {
  std::size_t index = 0;
  double lead = 0;
};
Chosen by_formula(const Spec& spec, const Training& training, const LinkCost& link, double weight) {
  std::array<double, 5> seconds;
  std::array<double, 5> lack;
  for (std::size_t i = 0; i < 5; ++i) {
    const CallCost cost = compressed_cost(spec, authors[i], training.parameters, ranks);
    seconds[i] = cost.messages * link.alpha + cost.bytes * link.beta + cost.work_s;
    lack[i] = 1 / training.gains[i];
  }
  std::vector<std::pair<double, std::size_t>> prices;
  for (std::size_t i = 0; i < 5; ++i) {
    const double time = (seconds[i] - seconds[0]) / (seconds[4] - seconds[0]);
    const double gain = (lack[i] - lack[4]) / (lack[0] - lack[4]);
    prices.emplace_back(std::max(weight * time, (1 - weight) * gain), i);
  }
  std::sort(prices.begin(), prices.end());
  return {prices[0].second, prices[1].first / prices[0].first};
}

}  // namespace

TEST_CASE("the paper's objective takes the density that its formula gives", "[density]") {
  int clear = 0;
  std::array<int, 5> taken{};
  for (const char* scheme : {"topk", "ar-topk", "exdyna"}) {
    for (const Training& training : trainings) {
      for (const double weight : {0.6, 0.1, 0.9}) {
        for (const double gbps : {25.0, 10.0, 1.0}) {
          const std::string weighed = weight == 0.6 ? "" : fmt::format(",weight={}", weight);
          const Spec spec = *Spec::parse(
              fmt::format("{}:density=auto,objective=paper,bypass=never{}", scheme, weighed));
          const LinkCost link{1 * ms, ring_of_gbps(gbps), 0};
          const Chosen expected = by_formula(spec, training, link, weight);
          if (expected.lead < 1.06) continue;  // less is not worth a change
          ++clear;
          ++taken[expected.index];
          INFO(spec.text() << ", " << training.name << ", " << gbps << " Gbit/s");
          const double found =
              choose_density(spec, training.parameters, ranks, link, facts_of(training.gains))
                  .density;
          CHECK(found == Approx(authors[expected.index]));
        }
      }
    }
  }
  CHECK(clear > 100);
  CHECK(std::count(taken.begin(), taken.end(), 0) <= 2);
}

// Bytes alone take time: scaled and weighed by .6 the four densities' are 0, .007, .153 and .6.
TEST_CASE("the paper's objective in numbers", "[density]") {
  const Spec spec = *Spec::parse("topk:density=0.01..0.1,objective=paper,bypass=never");
  const Candidates all = candidates_of(spec);
  REQUIRE(all.count == 4);
  CHECK(all[0] == Approx(0.01));
  CHECK(all[1] == Approx(0.011));
  CHECK(all[2] == Approx(0.033));
  CHECK(all[3] == Approx(0.1));
  DensityFacts facts;
  facts.gains = {1.0 / 9, 1.0 / 8, 1.0 / 2, 1};  // .4, .35, .05 and 0
  const LinkCost link{0, 1e-6, 0};
  CHECK(choose_density(spec, 1'000'000, ranks, link, facts).density == Approx(0.033));
  facts.gains = {1.0 / 9, 1.0 / 2, 1.0 / 1.9, 1};  // .4, .05, .045 and 0
  CHECK(choose_density(spec, 1'000'000, ranks, link, facts).density == Approx(0.011));
}

// What other densities better in both is not part of the scale.
TEST_CASE("the paper's objective scales by the front alone", "[density]") {
  const Spec spec = *Spec::parse("topk:density=auto,objective=paper,bypass=never");
  const LinkCost link{0, 1e-6, 0};
  DensityFacts facts;
  facts.gains = {0.2, 0.5, 0.5, 0.5, 0.5};  // from the second on nothing is gained
  // (0, .4) and (.6, 0): with the dear ones in the scale the second would cost (.02, 0).
  CHECK(choose_density(spec, 1'000'000, ranks, link, facts).density == Approx(0.001));
  facts.gains = {0.5, 0.5, 0.5, 0.5, 0.5};
  CHECK(choose_density(spec, 1'000'000, ranks, link, facts).density == Approx(0.001));
}

TEST_CASE("candidates of the paper are the authors', and the ends of the range", "[density]") {
  const auto candidates = [](const char* range) {
    const Spec spec = *Spec::parse(fmt::format("topk:density={},objective=paper", range));
    const Candidates all = candidates_of(spec);
    return fmt::format("{:.4g}", fmt::join(std::span(all.densities).first(all.count), " "));
  };
  CHECK(candidates("auto") == "0.001 0.004 0.011 0.033 0.1");
  CHECK(candidates("0.002..0.02") == "0.002 0.004 0.011 0.02");
  CHECK(candidates("0.0001..1") == "0.0001 0.001 0.004 0.011 0.033 0.1 1");
  CHECK(candidates("0.2..0.3") == "0.2 0.3");
  CHECK(Spec::parse("topk:density=auto,objective=paper")->density == Approx(0.011));
  CHECK(Spec::parse("exdyna:density=auto,objective=paper")->density == Approx(0.001));
}

TEST_CASE("with the paper's objective a call is dense where that is faster", "[density]") {
  constexpr std::size_t count = 25'000'000;
  Spec spec = *Spec::parse("topk:density=auto,objective=paper");
  const DensityFacts facts = facts_of(trainings[0].gains);
  const LinkCost fast{2e-6, 0.01e-9, 0};
  const LinkCost slow{20e-6, 80e-9, 0};
  CHECK(choose_density(spec, count, ranks, fast, facts).density == 1);
  CHECK(choose_density(spec, count, ranks, slow, facts).density < 1);
  spec.density = 1;  // from a dense call
  CHECK(choose_density(spec, count, ranks, fast, facts).density == 1);
  CHECK(choose_density(spec, count, ranks, slow, facts).density < 1);
  const Spec never = *Spec::parse("topk:density=auto,objective=paper,bypass=never");
  CHECK(choose_density(never, count, ranks, fast, facts).density < 1);
}

}  // namespace pith::test
