// density=auto: what a link is found to be, and which density it gives.
#include "model/density_choice.hpp"

#include <cmath>

#include "model/model.hpp"
#include "tests/catch.hpp"

namespace pith::test {

namespace {

constexpr std::size_t count = 25'000'000;
constexpr int ranks = 4;
constexpr LinkCost nominal{20e-6, 0.8e-9, 0};
constexpr LinkCost slow{20e-6, 80e-9, 0};
constexpr LinkCost fast{2e-6, 0.01e-9, 0};

// Few elements have most of the squares: gain = density^power.
DensityFacts facts(const Spec& spec, double power, double between_s = 0.1) {
  DensityFacts found;
  const Candidates all = candidates_of(spec);
  for (std::size_t i = 0; i < all.count; ++i) found.gains[i] = std::pow(all[i], power);
  found.between_s = between_s;
  return found;
}

double chosen(const Spec& spec, const LinkCost& link, const DensityFacts& found) {
  return choose_density(spec, count, ranks, link, found);
}

double seconds(const Spec& spec, double density, const LinkCost& link) {
  const CallCost cost =
      density >= 1 ? dense_cost(count, ranks) : compressed_cost(spec, density, count, ranks);
  return cost.seconds(link.alpha, link.beta);
}

// A vector whose calls take what the link takes.
struct Vector {
  explicit Vector(const char* text) : spec(*Spec::parse(text)) {}

  Spec spec;
  Model model{ranks};
  DensityControl control;
  std::uint64_t step = 0;
  std::uint64_t timed = 0;  // the last step in which ranks agreed

  // A call as in collectives/compressed.cpp: ranks agree only where they have planned to.
  void run(const LinkCost& link, double power) {
    if (adapts_density(step, control)) {
      DensityFacts found = facts(spec, power);
      found.step = step;
      if (timed > 0 && timed + 1 == step) found.last_s = seconds(spec, spec.density, link);
      model.adapt_density(spec, count, found, control);
      timed = step;
      spec.density = control.density;
    }
    control.count = count;
    ++step;
  }

  void call(const LinkCost& link, double power, double between_s = 0.1) {
    DensityFacts found = facts(spec, power, between_s);
    if (control.count > 0) found.last_s = seconds(spec, spec.density, link);
    model.adapt_density(spec, count, found, control);
    control.count = count;
    spec.density = control.density;
  }
};

}  // namespace

TEST_CASE("candidates lie between the ends of the range", "[density]") {
  const Spec spec = *Spec::parse("topk:density=auto");
  const Candidates all = candidates_of(spec);
  CHECK(all.count == 16);
  CHECK(all[0] == Approx(0.001));
  CHECK(all[15] == Approx(0.1));
  for (std::size_t i = 0; i < all.count; ++i) CHECK(all.nearest(all[i]) == i);
  CHECK(all.nearest(1) == 15);
  CHECK(all.nearest(1e-9) == 0);
}

TEST_CASE("slow links, short computations and steep gains give low densities", "[density]") {
  const Spec spec = *Spec::parse("topk:density=auto,bypass=never");
  CHECK(chosen(spec, slow, facts(spec, 0.3)) < chosen(spec, nominal, facts(spec, 0.3)));
  CHECK(chosen(spec, slow, facts(spec, 0.3, 0.05)) < chosen(spec, slow, facts(spec, 0.3, 5)));
  CHECK(chosen(spec, slow, facts(spec, 0.1)) < chosen(spec, slow, facts(spec, 0.6)));
  CHECK(chosen(spec, fast, facts(spec, 0.5)) == Approx(0.1));
}

TEST_CASE("a call is dense where that gets more out of a second", "[density]") {
  const Spec spec = *Spec::parse("topk:density=auto");
  CHECK(chosen(spec, fast, facts(spec, 0.5)) == 1);
  CHECK(chosen(spec, slow, facts(spec, 0.1)) < 0.01);
  const Spec never = *Spec::parse("topk:density=auto,bypass=never");
  CHECK(chosen(never, fast, facts(never, 0.5)) < 1);
}

TEST_CASE("less than a twentieth is not worth a change", "[density]") {
  const Spec spec = *Spec::parse("topk:density=auto,bypass=never");
  const DensityFacts found = facts(spec, 0.3);
  const double best = chosen(spec, nominal, found);
  const Candidates all = candidates_of(spec);
  const std::size_t near = all.nearest(best);
  REQUIRE(near > 0);
  const double beside = all[near - 1];
  for (const double present : {beside, best}) {
    Spec at = spec;
    at.density = present;
    CHECK(chosen(at, nominal, found) == present);
  }
}

TEST_CASE("the weight of time against gain can be chosen", "[density]") {
  const Spec even = *Spec::parse("topk:density=auto,bypass=never");
  const auto with = [](const std::string& weight) {
    return *Spec::parse("topk:density=auto,bypass=never,weight=" + weight);
  };
  const DensityFacts found = facts(even, 0.3);
  CHECK(chosen(with("0.5"), nominal, found) == chosen(even, nominal, found));
  CHECK(chosen(with("0.7"), nominal, found) < chosen(with("0.3"), nominal, found));
  CHECK(chosen(with("1"), nominal, found) == Approx(0.001));
  CHECK(chosen(with("1e-9"), nominal, found) == Approx(0.1));
}

TEST_CASE("a link is found from calls of two densities", "[density]") {
  const Spec spec = *Spec::parse("topk:density=auto");
  for (const LinkCost& link : {slow, LinkCost{20e-3, 8e-9, 0}, LinkCost{5e-3, 0.8e-9, 0}}) {
    LinkSums sums;
    for (const double density : {0.01, 0.001, 0.1}) {
      add_call(sums, nominal, compressed_cost(spec, density, count, ranks),
               seconds(spec, density, link));
    }
    const LinkCost found = fitted_link(sums, nominal);
    CHECK(found.alpha == Approx(link.alpha).epsilon(0.05));
    CHECK(found.beta == Approx(link.beta).epsilon(0.05));
  }
  CHECK(fitted_link({}, nominal).beta == Approx(nominal.beta));
  LinkSums useless;
  add_call(useless, nominal, dense_cost(count, ranks), 0);
  CHECK(fitted_link(useless, nominal).alpha == Approx(nominal.alpha));
}

TEST_CASE("a density follows the link within a few calls", "[density]") {
  Vector vector("topk:density=auto,bypass=never");
  for (int i = 0; i < 6; ++i) vector.call(nominal, 0.3);
  const double before = vector.control.density;
  CHECK(before == Approx(chosen(vector.spec, nominal, facts(vector.spec, 0.3))).epsilon(0.5));
  for (int i = 0; i < 6; ++i) vector.call(slow, 0.3);
  const double on_slow = vector.control.density;
  CHECK(on_slow < before / 2);
  CHECK(on_slow == Approx(chosen(vector.spec, slow, facts(vector.spec, 0.3))).epsilon(0.5));
  for (int i = 0; i < 12; ++i) vector.call(nominal, 0.3);
  CHECK(vector.control.density > on_slow * 1.5);
}

TEST_CASE("a step of the link is followed within ten calls", "[density]") {
  for (const auto& [before, after] : {std::pair{nominal, slow}, std::pair{slow, nominal}}) {
    for (int calls_before = 20; calls_before < 40; ++calls_before) {
      Vector vector("topk:density=auto,bypass=never");
      for (int i = 0; i < calls_before; ++i) vector.run(before, 0.3);
      for (int i = 0; i < 10; ++i) vector.run(after, 0.3);
      CAPTURE(calls_before, after.beta, vector.spec.density);
      const DensityFacts found = facts(vector.spec, 0.3);
      const double best = chosen(vector.spec, after, found);
      const auto cost = [&](double density) {
        return (found.between_s + seconds(vector.spec, density, after)) / std::pow(density, 0.3);
      };
      CHECK(cost(vector.spec.density) < 1.1 * cost(best));
    }
  }
}

TEST_CASE("a density grows in steps, each of which is timed", "[density]") {
  Vector vector("topk:density=auto");
  for (int i = 0; i < 20; ++i) vector.run(slow, 0.3);
  double before = vector.spec.density;
  REQUIRE(before < 0.01);
  for (int i = 0; i < 10; ++i) {
    vector.run(fast, 0.3);
    CAPTURE(before, vector.spec.density);
    CHECK((vector.spec.density < 5 * before || before == Approx(0.1)));
    before = vector.spec.density;
  }
  CHECK(before == 1);
}

TEST_CASE("ranks agree seldom where that costs much of a call", "[density]") {
  const Spec spec = *Spec::parse("topk:density=0.001");
  const auto interval = [&](const LinkCost& link, double between_s) {
    return density_interval(spec, 1'000'000, ranks, link, facts(spec, 0.3, between_s));
  };
  CHECK(interval(nominal, 0.1) == 4);
  CHECK(interval({20e-3, 0.8e-9, 0}, 0.001) == 12);
  CHECK(interval({2e-3, 0.8e-9, 0}, 0.02) == 7);
}

TEST_CASE("a deterministic choice knows no times", "[density]") {
  Settings settings;
  settings.deterministic = true;
  const Model model(settings, ranks);
  const Spec spec = *Spec::parse("topk:density=auto");
  DensityControl first;
  DensityControl second;
  first.count = second.count = count;
  DensityFacts late = facts(spec, 0.3, 100);
  late.last_s = 17;
  model.adapt_density(spec, count, facts(spec, 0.3, 0.001), first);
  model.adapt_density(spec, count, late, second);
  CHECK(first.density == second.density);
  CHECK(second.link.bytes_seconds == 0);
}

}  // namespace pith::test
