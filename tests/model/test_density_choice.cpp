// density=auto: what a link is found to be, and which density it gives.
#include "model/density_choice.hpp"

#include <cmath>

#include "compress/density_key.hpp"
#include "model/model.hpp"
#include "tests/catch.hpp"
#include "tests/model/density_facts.hpp"

namespace pith::test {

namespace {

DensityFacts facts(const Spec& spec, double power, double between_s = 0.1) {
  return facts_of(spec, power, between_s, {0, 4e-5, 0.1});
}

double chosen(const Spec& spec, const LinkCost& link, const DensityFacts& found) {
  return choose_density(spec, count, ranks, link, found).density;
}

double seconds(const Spec& spec, double density, const LinkCost& link) {
  const bool dense = density >= 1 && spec.form == Form::none;
  const CallCost cost =
      dense ? dense_cost(count, ranks) : compressed_cost(spec, density, count, ranks);
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
      follow(spec, control);
    }
    control.count = count;
    ++step;
  }

  void call(const LinkCost& link, double power, double between_s = 0.1) {
    DensityFacts found = facts(spec, power, between_s);
    found.step = ++step;
    if (control.count > 0) found.last_s = seconds(spec, spec.density, link);
    model.adapt_density(spec, count, found, control);
    control.count = count;
    follow(spec, control);
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
  CHECK(chosen(spec, fast, facts(spec, 1)) == Approx(0.1));
}

TEST_CASE("a call is dense where that gets more out of a second", "[density]") {
  const Spec spec = *Spec::parse("topk:density=auto");
  CHECK(chosen(spec, fast, facts(spec, 0.5)) == 1);
  CHECK(chosen(spec, slow, facts(spec, 0.1)) < 0.01);
  const Spec never = *Spec::parse("topk:density=auto,bypass=never");
  CHECK(chosen(never, fast, facts(never, 0.5)) < 1);
}

TEST_CASE("all is sent with few bits where that gets more out of a second", "[density]") {
  const Spec spec = *Spec::parse("topk:density=auto,quantise=auto");
  const auto form = [&](const LinkCost& link, double power, double lost_by_qsgd) {
    DensityFacts found = facts(spec, power);
    found.losses = {0, 4e-5, lost_by_qsgd};
    return choose_density(spec, count, ranks, link, found).form;
  };
  CHECK(form(slow, 0.9, 0.03) == Form::qsgd4);
  CHECK(form(slow, 0.9, 1) == Form::qsgd8);
  CHECK(form(slow, 0.1, 0.03) == Form::none);  // few elements have nearly all
  CHECK(form(fast, 0.9, 0.03) == Form::none);  // coding takes longer than the link
  CHECK(choose_density(spec, count, ranks, fast, facts(spec, 0.9)).density == 1);
  const Spec one = *Spec::parse("topk:density=auto,quantise=bf16");
  CHECK(choose_density(one, count, ranks, nominal, facts(one, 0.9)).form == Form::bf16);
}

TEST_CASE("a form is come to in steps, and left at once", "[density]") {
  Spec spec = *Spec::parse("topk:density=auto,quantise=auto");
  const auto go_to = [&](DensityChoice choice) {
    spec.density = choice.density;
    spec.form = choice.form;
  };
  go_to({0.001, Form::none});
  const auto next_to = [&](DensityChoice best) {
    return cautious_choice(spec, best, count, ranks);
  };
  const DensityChoice next = next_to({1, Form::qsgd8});
  CHECK(next.form == Form::none);
  CHECK(next.density > 0.001);
  CHECK(next.density < 0.005);
  go_to({0.05, Form::none});
  CHECK(next_to({1, Form::qsgd8}) == DensityChoice{1, Form::qsgd8});
  go_to({0.01, Form::none});
  CHECK(next_to({1, Form::qsgd8}).form ==
        Form::none);  // 1.5 bytes an element: as a density of 0.08
  go_to({0.02, Form::none});
  CHECK(next_to({1, Form::none}).density == Approx(0.0736).epsilon(0.01));  // more than 4 bits
  go_to({1, Form::qsgd4});
  CHECK(next_to({1, Form::none}).form == Form::bf16);
  CHECK(next_to({0.001, Form::none}) == DensityChoice{0.001, Form::none});
  go_to({1, Form::qsgd8});
  CHECK(next_to({1, Form::none}) == DensityChoice{1, Form::none});
}

TEST_CASE("with feedback a call is worth the share of the norm", "[density]") {
  const Spec kept = *Spec::parse("topk:density=auto,bypass=never");
  const Spec dropped = *Spec::parse("topk:density=auto,bypass=never,feedback=0");
  CHECK(chosen(kept, nominal, facts(kept, 0.6)) == chosen(dropped, nominal, facts(kept, 0.3)));
  CHECK(chosen(kept, nominal, facts(kept, 0.6)) < chosen(dropped, nominal, facts(kept, 0.6)));
}

// By calls of one length a link of long messages and one of few bytes are the same.
TEST_CASE("a call of other bytes tells what a byte costs", "[density]") {
  const LinkCost few_bytes{20e-6, 8e-9, 0};
  Vector vector("topk:density=auto,bypass=never");
  for (int i = 0; i < 5; ++i) vector.run(nominal, 0.3);
  vector.control.link = {};
  vector.spec.density = vector.control.density = 0.1;
  vector.control.probed = 0;
  bool tried_less = false;
  for (int i = 0; i < 40; ++i) {
    const double before = vector.spec.density;
    vector.run(few_bytes, 0.3);
    tried_less = tried_less || vector.spec.density < 0.6 * before;
  }
  CHECK(tried_less);
  const double best = chosen(vector.spec, few_bytes, facts(vector.spec, 0.3));
  CHECK(vector.spec.density == Approx(best).epsilon(0.5));
  Spec spec = *Spec::parse("topk:density=auto,quantise=auto");
  spec.form = Form::none;
  spec.density = 0.001;
  CHECK(other_bytes(spec, count, ranks).density == Approx(0.00185).epsilon(0.01));
  CHECK(other_bytes(spec, count, 1) == present_of(spec));
  spec = in_form(spec, Form::qsgd8);
  CHECK(other_bytes(spec, count, ranks).density == Approx(0.0398).epsilon(0.01));
  Spec narrow = *Spec::parse("topk:density=0.0001..0.00015");
  narrow.density = 0.0001;
  CHECK(other_bytes(narrow, count, ranks) == present_of(narrow));  // not a dense call
}

// Cores that are faster than assumed are no link that changes.
TEST_CASE("calls of other bytes are rare, and never by the paper's objective", "[density]") {
  const LinkCost none{1e-9, 1e-15, 0};
  const auto probes = [&](const char* text) {
    Vector vector(text);
    int found = 0;
    for (int i = 0; i < 130; ++i) {
      const double before = vector.spec.density;
      DensityFacts told = facts(vector.spec, 0.3);
      told.step = vector.step++;
      const double took =
          vector.control.count > 0 ? 0.3 * seconds(vector.spec, vector.spec.density, none) : 0;
      told.last_s = took;
      vector.model.adapt_density(vector.spec, count, told, vector.control);
      vector.control.count = count;
      follow(vector.spec, vector.control);
      found += vector.control.probes;
      if (vector.control.probes) CHECK(vector.spec.density != before);
    }
    return found;
  };
  const int usual = probes("topk:density=auto,bypass=never");
  CHECK(usual >= 1);
  CHECK(usual <= 4);
  CHECK(probes("topk:density=auto,bypass=never,objective=paper") == 0);
}

TEST_CASE("what a vector begins with has no advantage", "[density]") {
  const Spec spec = *Spec::parse("topk:density=auto,quantise=auto");
  DensityFacts found = facts(spec, 0.9);  // a dense call is better by a little
  found.between_s = 1;
  CHECK(choose_density(spec, count, ranks, fast, found) == present_of(spec));
  found.first = true;
  CHECK(choose_density(spec, count, ranks, fast, found) == DensityChoice{1, Form::none});
  CHECK(choose_density(spec, count, 1, fast, found).form == Form::none);
  found.first = false;
  CHECK(choose_density(spec, count, 1, fast, found).form == Form::none);
}

TEST_CASE("there is always a step towards the best choice", "[density]") {
  for (const char* text : {"topk:density=auto,quantise=auto", "topk:density=auto,quantise=qsgd4",
                           "topk:density=0.0001..0.001", "ar-topk:density=auto,quantise=qsgd8"}) {
    for (const int n : {2, 4, 64}) {
      Spec spec = *Spec::parse(text);
      spec.form = Form::none;
      spec.density = double(spec.least_density);
      const DensityChoice dense{1, Form::none};
      int steps = 0;
      while (present_of(spec) != dense && steps < 20) {
        const DensityChoice next = cautious_choice(spec, dense, count, n);
        spec.density = next.density;
        spec.form = next.form;
        ++steps;
      }
      CAPTURE(text, n);
      CHECK(steps < 10);
    }
  }
}

TEST_CASE("forms follow the link", "[density]") {
  Vector vector("topk:density=auto,quantise=auto");
  CHECK(vector.spec.form == Form::qsgd8);
  for (int i = 0; i < 20; ++i) vector.run(slow, 0.9);
  CHECK(vector.spec.form == Form::qsgd4);
  for (int i = 0; i < 20; ++i) vector.run(fast, 0.9);
  CHECK(vector.spec.form == Form::none);
  CHECK(vector.spec.density == 1);
  for (int i = 0; i < 20; ++i) vector.run(slow, 0.05);
  CHECK(vector.spec.density < 0.01);
}

TEST_CASE("less than a twentieth is not worth a change", "[density]") {
  const Spec spec = *Spec::parse("topk:density=auto,bypass=never");
  const DensityFacts found = facts(spec, 0.6);
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
        return (found.between_s + seconds(vector.spec, density, after)) / std::pow(density, 0.15);
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
  for (int i = 0; i < 20; ++i) {
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
