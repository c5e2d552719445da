// The scheme `auto`: which of the allowed ones it takes, and what it learns of them.
#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "compress/density_key.hpp"
#include "compress/scheme.hpp"
#include "model/density_choice.hpp"
#include "model/model.hpp"
#include "tests/catch.hpp"
#include "tests/model/density_facts.hpp"

namespace pith::test {

namespace {

// Codings lose what they do of normal numbers.
DensityFacts facts(const Spec& spec, double power, double between_s = 0.1) {
  return facts_of(spec, power, between_s,
                  {0, 4e-5, 0.013, 1e-7, 7e-4, 7e-5, 0.1, 0.9, 0.7, 0.36, 0.36, 0.3});
}

DensityChoice chosen(const std::string& text, const LinkCost& link, double power,
                     const DensityControl& control = {}, double between_s = 0.1) {
  const Spec spec = *Spec::parse(text);
  DensityFacts found = facts(spec, power, between_s);
  found.first = true;
  return choose_density(spec, count, ranks, link, found, control);
}

// A vector whose calls take what the link takes, and in some forms send less than promised.
struct Vector {
  explicit Vector(const std::string& text) : spec(*Spec::parse(text)) {}

  Spec spec;
  Model model{ranks};
  DensityControl control;
  std::uint64_t step = 0;
  Form worse = Form::none;  // sends this part of what it promises
  double part = 0.2;

  Form call(const LinkCost& link, double power) {
    DensityFacts found = facts(spec, power);
    found.step = ++step;
    if (control.count > 0) {
      const CallCost cost = way_cost(spec, spec.adapted_to_dense(), count, ranks);
      found.last_s = cost.seconds(link.alpha, link.beta);
      const double promised = found.gains[candidates_of(spec).nearest(spec.density)];
      found.sent = spec.form == worse ? promised * part : promised;
    }
    model.adapt_density(spec, count, found, control);
    control.count = count;
    follow(spec, control);
    return spec.form;
  }
};

}  // namespace

TEST_CASE("auto chooses as the schemes that it allows would", "[auto]") {
  for (const char* rest : {"", ",bypass=never", ",feedback=0", ",weight=0.8"}) {
    const std::string several = std::string("auto:schemes=bf16+qsgd8+qsgd4+topk") + rest;
    const std::string one = std::string("topk:density=auto,quantise=auto") + rest;
    for (const LinkCost& link : {nominal, slow, fast}) {
      for (const double power : {0.05, 0.1, 0.3, 0.6, 0.9}) {
        INFO(rest << ", " << link.beta << ", " << power);
        const DensityChoice by_auto = chosen(several, link, power);
        const DensityChoice by_topk = chosen(one, link, power);
        CHECK(by_auto.density == by_topk.density);
        const bool is_topk = by_topk.form == Form::none && by_topk.density < 1;
        CHECK(by_auto.form == (is_topk ? Form::topk : by_topk.form));
      }
    }
  }
}

TEST_CASE("auto takes only what it allows", "[auto]") {
  CHECK(chosen("auto:schemes=int8,bypass=never", fast, 0.5).form == Form::int8);
  CHECK(chosen("auto:schemes=int8", fast, 0.5) == DensityChoice{1, Form::none});
  CHECK(chosen("auto:schemes=onebit+bf16", slow, 0.1).form == Form::onebit);
  CHECK(chosen("auto:schemes=deft,bypass=never", slow, 0.1).form == Form::deft);
  const Spec alone = *Spec::parse("auto:schemes=efsign,bypass=never");
  const DensityChoice choice = choose_density(alone, count, 1, slow, facts(alone, 0.5));
  CHECK(choice.form == Form::efsign);
}

TEST_CASE("auto weighs what a coding loses and whether it comes later", "[auto]") {
  // Where computation takes long, few bits save little, and what they lose counts.
  CHECK(chosen("auto:schemes=qsgd2+qsgd8,bypass=never", slow, 0.9, {}, 100).form == Form::qsgd8);
  CHECK(chosen("auto:schemes=qsgd2+qsgd8,bypass=never", slow, 0.9, {}, 0).form == Form::qsgd2);
  // Both lose much; one keeps it, in half the bytes.
  CHECK(chosen("auto:schemes=terngrad+onebit,bypass=never", slow, 0.9).form == Form::onebit);
  // Both are as long; one rounds without bias.
  CHECK(chosen("auto:schemes=int8+natural,bypass=never", slow, 0.9).form == Form::int8);
}

TEST_CASE("among many ranks common elements are fewer bytes than lists of all", "[auto]") {
  const Spec spec = *Spec::parse("auto:schemes=topk+ar-topk,bypass=never");
  const auto form = [&](int many) {
    DensityFacts found = facts(spec, 0.2);
    found.first = true;
    return choose_density(spec, count, many, slow, found).form;
  };
  CHECK(form(2) == Form::topk);
  CHECK(form(64) == Form::ar_topk);
}

TEST_CASE("a scheme that sends nothing is left", "[auto]") {
  Vector vector("auto:schemes=topk+ar-topk,bypass=never");
  vector.worse = Form::ar_topk;
  vector.part = 0;
  std::multiset<Form> taken;
  for (int i = 0; i < 60; ++i) taken.insert(vector.call(slow, 0.2));
  CHECK(taken.count(Form::ar_topk) > 0);
  CHECK(taken.count(Form::ar_topk) < 6);
}

// Or calls of one length would be taken for what is known of the link.
TEST_CASE("auto probes other bytes among codings, too", "[auto]") {
  const Spec codings = *Spec::parse("auto:schemes=qsgd8+onebit+qsgd4,bypass=never");
  CHECK(codings.form == Form::qsgd8);
  CHECK(other_bytes(codings, count, ranks) == DensityChoice{1, Form::qsgd4});
  const Spec one = *Spec::parse("auto:schemes=onebit,bypass=never");
  CHECK(other_bytes(one, count, ranks) == present_of(one));
  Vector vector("auto:schemes=onebit,bypass=never");
  for (int i = 0; i < 20; ++i) {
    vector.call(slow, 0.2);
    CHECK_FALSE(vector.control.probes);
  }
}

TEST_CASE("auto learns what a scheme sends of what its sample promises", "[auto]") {
  Vector vector("auto:schemes=topk+ar-topk,bypass=never");
  vector.worse = Form::ar_topk;
  std::multiset<Form> taken;
  for (int i = 0; i < 40; ++i) taken.insert(vector.call(slow, 0.2));
  CHECK(taken.count(Form::ar_topk) > 0);  // it promised as much, in fewer bytes
  CHECK(taken.count(Form::ar_topk) < 6);
  CHECK(vector.control.share(Form::topk) == 0);  // nothing is to be learned
  CHECK(vector.control.share(Form::ar_topk) > 0.2F);
  CHECK(vector.control.share(Form::ar_topk) < 0.6F);  // not tried for long, believed less
  // Later it is tried again.
  for (int i = 0; i < 400; ++i) taken.insert(vector.call(slow, 0.2));
  CHECK(taken.count(Form::ar_topk) > 1);
  CHECK(taken.count(Form::ar_topk) < 40);
  // Nothing is promised of the others, and schemes without a choice learn nothing.
  CHECK(vector.control.share(Form::exdyna) == 0);
  DensityControl control;
  DensityFacts sent;
  sent.sent = 0.1;
  sent.gains.fill(0.5);
  learn_share(*Spec::parse("topk:density=auto"), sent, control);
  CHECK(std::ranges::all_of(control.shares, [](float share) { return share == 0; }));
}

}  // namespace pith::test
