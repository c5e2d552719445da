// The grammar of specs.
#include <limits>
#include <string>
#include <vector>

#include "compress/exdyna_scheme.hpp"
#include "compress/scheme.hpp"
#include "compress/thresholds/threshold_keys.hpp"
#include "tests/catch.hpp"

namespace pith::test {

namespace {

std::string refusal(std::string_view text) {
  const Expected<Spec> spec = Spec::parse(text);
  if (spec) return "accepted";
  return spec.error().code() == Code::invalid_argument ? spec.error().message() : "another code";
}

void check_says(std::string_view text, const std::vector<std::string>& words) {
  const std::string message = refusal(text);
  for (const std::string& word : words) {
    INFO(text << " -> " << message << ", expected " << word);
    CHECK(message.find(word) != std::string::npos);
  }
}

const std::vector<std::string> schemes = {
    "none",    "bf16",     "fp16",     "int8",   "fp8",   "qsgd",      "terngrad", "natural",
    "sign",    "signum",   "efsign",   "onebit", "3lc",   "powersgd",  "topk",     "bounded",
    "randomk", "ar-topk",  "exdyna",   "micro",  "deft",  "threshold", "sidco",    "dgc",
    "wangni",  "adaptive", "arc-topk", "atomo",  "clt-k", "gtopk"};

}  // namespace

TEST_CASE("defaults of specs") {
  const Spec topk = *Spec::parse("topk");
  CHECK(topk.scheme->name == "topk");
  CHECK(topk.density == 0.01);
  CHECK(topk.values == DType::f32);
  CHECK(topk.feedback);
  CHECK(topk.may_bypass);
  CHECK_FALSE(topk.by_host);
  CHECK_FALSE(topk.drops_nonfinite);
  CHECK(Spec::parse("exdyna")->density == 0.001);
  CHECK(partition_of(*Spec::parse("exdyna")) == Partition::prefix);
  CHECK(partition_of(*Spec::parse("exdyna:rule=released")) == Partition::neighbour);
  CHECK(partition_of(*Spec::parse("exdyna:rule=released,partition=prefix")) == Partition::prefix);
  CHECK_FALSE(Spec::parse("none")->sparse());
  CHECK_FALSE(Spec::parse("bf16")->sparse());
}

TEST_CASE("specs of schemes whose elections have a threshold or are drawn") {
  CHECK(value_of(*Spec::parse("threshold:value=0.25")) == 0.25f);
  CHECK(value_of(*Spec::parse("threshold:value=1e-45")) > 0);
  check_says("threshold:value=0", {"value is \"0\"", "more than 0"});
  check_says("threshold:value=1e39", {"value is \"1e39\"", "float32"});
  check_says("threshold:density=0.1", {"threshold has no key \"density\"", "value"});
  check_says("sidco:density=auto", {"density is \"auto\"", "more than 0 and at most 1"});
  check_says("sidco:law=normal", {"exponential, pareto"});
  CHECK(law_of(*Spec::parse("sidco:law=pareto")) == TailLaw::pareto);
  CHECK_FALSE(Spec::parse("wangni")->feedback);
  check_says("wangni:feedback=1", {"wangni has no key \"feedback\""});
  CHECK(Spec::parse("adaptive:feedback=0")->sparse());
}

TEST_CASE("the density of dgc falls to its target") {
  Spec spec = *Spec::parse("dgc:density=0.001,warmup=2,momentum=0,clip=0");
  CHECK(spec.text() ==
        "dgc:density=0.001,momentum=0,warmup=2,clip=0,exchange=auto,values=f32,"
        "bypass=auto,nonfinite=propagate");
  CHECK(spec.largest_density() == Approx(0.1));
  const std::vector<double> expected = {0.1, 0.01, 0.001, 0.001};
  for (std::size_t step = 0; step < expected.size(); ++step) {
    follow_step(spec, step);
    CHECK(spec.density == Approx(expected[step]));
    CHECK(*Spec::parse(spec.text()) == *Spec::parse("dgc:warmup=2,momentum=0"));
  }
  CHECK(Spec::parse("dgc")->scheme->correction(*Spec::parse("dgc")).momentum == 0.9f);
  check_says("dgc:momentum=1", {"momentum is \"1\"", "less than 1"});
  check_says("dgc:momentum=-0.1", {"momentum is \"-0.1\""});
  check_says("dgc:warmup=0.5", {"warmup is \"0.5\"", "a number of calls"});
  check_says("dgc:feedback=0", {"dgc has no key \"feedback\""});
  check_says("dgc:hierarchy=host", {"dgc has no key \"hierarchy\""});
}

TEST_CASE("clt-k filters residuals if it is told to") {
  CHECK_FALSE(filters_residual(*Spec::parse("clt-k")));
  const Spec filtered = *Spec::parse("clt-k:beta=0.25");
  CHECK(low_pass_of(filtered) == 0.25f);
  CHECK(filtered.text() ==
        "clt-k:density=0.01,beta=0.25,reduction=direct,values=f32,bypass=auto,"
        "nonfinite=propagate");
  check_says("clt-k:beta=0", {"beta is \"0\"", "more than 0 and at most 1"});
  check_says("clt-k:election=variance", {"clt-k has no key \"election\""});
}

TEST_CASE("codings of specs") {
  const auto coding = [](const char* text) {
    const Spec spec = *Spec::parse(text);
    CHECK_FALSE(spec.sparse());
    return spec.scheme->coding(spec);
  };
  using enum Coding::Kind;
  CHECK(coding("int8") == Coding{levels, 8, false, 256});
  CHECK(coding("fp16:feedback=1") == Coding{f16, 16, false, 256, true});
  CHECK(coding("int8:map=dynamic") == Coding{dynamic, 8, false, 256});
  CHECK(coding("signum").momentum == 0.9F);
  CHECK(coding("signum").kind == signs);
  CHECK_FALSE(keeps_rest(*Spec::parse("signum")));
  CHECK(changes_accumulators(*Spec::parse("signum")));
  CHECK_FALSE(changes_accumulators(*Spec::parse("sign")));
  check_says("signum:momentum=1", {"momentum is \"1\"", "more than 0 and at most 0.9999"});
  CHECK(coding("int8:block=4096") == Coding{levels, 8, false, 4096});
  CHECK(coding("fp8") == Coding{e4m3, 8, false, 256});
  CHECK(coding("fp8:format=e5m2,block=128") == Coding{e5m2, 8, false, 128});
  CHECK(coding("qsgd") == Coding{levels, 4, true, 512});
  CHECK(coding("qsgd:bits=2,bucket=128") == Coding{levels, 2, true, 128});
  CHECK(coding("qsgd:bits=8") == Coding{levels, 8, true, 512});
  CHECK(coding("natural") == Coding{powers, 8, true, 512});
  CHECK(coding("sign") == Coding{signs, 1, false, 1024});
  CHECK(coding("efsign") == Coding{mean_signs, 1, false, 1024, true});
  CHECK(coding("terngrad") ==
        Coding{.kind = levels, .bits = 2, .draws = true, .block = 512, .clip = 2.5F});
  CHECK(coding("terngrad:clip=64,bucket=4096") ==
        Coding{.kind = levels, .bits = 2, .draws = true, .block = 4096, .clip = 64});
  CHECK(coding("onebit:block=512") == Coding{two_means, 1, false, 512, true});
  CHECK(coding("3lc") == Coding{ternary, 8, false, 1024, true});
  CHECK(coding("3lc:sparsity=1.75").sparsity == 1.75F);
  CHECK(coding("3lc:sparsity=1") == coding("3lc"));
  CHECK(coding("int8:feedback=1") == Coding{levels, 8, false, 256, true});
  CHECK_FALSE(coding_of(*Spec::parse("powersgd")));
  CHECK(rank_of(*Spec::parse("powersgd")) == 4);
  CHECK(rank_of(*Spec::parse("powersgd:rank=128,seed=5")) == 128);
  CHECK(rank_of(*Spec::parse("efsign")) == 0);
  CHECK(keeps_rest(*Spec::parse("powersgd")));
  CHECK_FALSE(draws_factors(*Spec::parse("powersgd")));
  CHECK(rank_of(*Spec::parse("atomo")) == 3);
  CHECK(draws_factors(*Spec::parse("atomo:rank=1,seed=7")));
  CHECK_FALSE(keeps_rest(*Spec::parse("atomo")));
  check_says("atomo:rank=129", {"rank is \"129\"", "1 to 128"});
  check_says("atomo:side=0", {"side is \"0\"", "8 to 65536"});
  check_says("atomo:start=1", {"atomo has no key \"start\""});
  check_says("powersgd:rank=0", {"rank is \"0\"", "1 to 128"});
  CHECK(rank_of(*Spec::parse("arc-topk")) == 0);
  CHECK(sketch_of(*Spec::parse("arc-topk")) == 4);
  CHECK(layout_rank_of(*Spec::parse("arc-topk:sketch=32")) == 32);
  CHECK(sketch_of(*Spec::parse("powersgd")) == 0);
  check_says("arc-topk:sketch=0", {"sketch is \"0\"", "1 to 32"});
  check_says("arc-topk:sketch=33", {"sketch is \"33\"", "1 to 32"});
  check_says("arc-topk:hierarchy=host", {"arc-topk has no key \"hierarchy\""});
  check_says("qsgd:bits=3", {"bits is \"3\"", "2, 4, 8"});
  check_says("terngrad:clip=1", {"clip is \"1\"", "more than 1 and at most 64"});
  check_says("3lc:sparsity=2", {"sparsity is \"2\"", "1 to 1.99"});
  check_says("3lc:sparsity=0.99", {"sparsity is \"0.99\"", "1 to 1.99"});
  check_says("onebit:seed=1", {"onebit has no key \"seed\"", "block"});
  check_says("int8:block=100", {"block is \"100\"", "128, 256"});
  check_says("int8:density=0.1", {"int8 has no key \"density\""});
}

TEST_CASE("codings of varying length, of specs") {
  const auto varying = [](const char* text) {
    const Spec spec = *Spec::parse(text);
    CHECK_FALSE(spec.sparse());
    CHECK(*Spec::parse(spec.text()) == spec);
    CHECK(Spec::unpack(spec.pack()) == spec);
    return spec.scheme->varying(spec);
  };
  constexpr float none = std::numeric_limits<float>::infinity();
  CHECK(varying("bounded") == VaryingCoding{.absolute = none, .relative = 1e-3F});
  CHECK(varying("bounded:abs=0.5") == VaryingCoding{.absolute = 0.5F, .relative = none});
  CHECK(varying("bounded:rel=0.1,abs=2,feedback=1") ==
        VaryingCoding{.absolute = 2, .relative = 0.1F, .keeps_rest = true});
  CHECK(varying("bounded:abs=1e-300").absolute > 0);
  check_says("bounded:abs=0", {"abs is \"0\"", "more than 0"});
  CHECK(varying("bounded:abs=0.5,rel=inf") == varying("bounded:abs=0.5"));
  CHECK(varying("bounded:rel=0.999").relative < 1);
  for (const std::string nan : {"nan", "-nan"}) {
    check_says("bounded:rel=" + nan, {"rel is \"" + nan + "\"", "more than 0 and below 1"});
    check_says("bounded:abs=" + nan, {"abs is \"" + nan + "\"", "more than 0, or inf"});
  }
  // What would send nothing but zeros.
  for (const std::string rel : {"1", "5", "1e+30"}) {
    check_says("bounded:rel=" + rel, {"rel is " + rel, "more than 0 and below 1, or inf"});
    check_says("bounded:abs=1,rel=" + rel, {"rel is " + rel, "more than 0 and below 1, or inf"});
  }
  check_says("bounded:rel=0.99999999999", {"rel is 1, expected"});  // as float32
  for (const char* const both :
       {"rel=inf", "abs=inf", "abs=inf,rel=inf", "rel=1e300", "abs=1e300"}) {
    check_says(std::string("bounded:") + both,
               {"abs is inf and rel is inf", "expected a bound by one of them"});
  }
  if (!Spec::parse("lossless")) return check_says("lossless", {"lossless needs libzstd"});
  CHECK(varying("lossless:level=3") ==
        VaryingCoding{.kind = VaryingCoding::Kind::lossless, .level = 3});
  check_says("lossless:level=20", {"level is \"20\"", "1 to 19"});
}

TEST_CASE("the order of keys does not matter, and text() comes back") {
  const Spec a = *Spec::parse("ar-topk:density=0.02,election=variance,values=bf16,seed=9");
  const Spec b = *Spec::parse("ar-topk:seed=9,values=bf16,election=variance,density=0.02");
  CHECK(a == b);
  CHECK(a.text() == b.text());
  CHECK(a.digest() == b.digest());
  CHECK(a.digest() != Spec::parse("ar-topk:density=0.02")->digest());
  for (const std::string& scheme : schemes) {
    const Spec spec = *Spec::parse(scheme);
    CHECK(*Spec::parse(spec.text()) == spec);
    CHECK(Spec::unpack(spec.pack()) == spec);
  }
  CHECK(*Spec::parse(a.text()) == a);
  CHECK(Spec::unpack(a.pack()) == a);
}

TEST_CASE("a density that adapts has a range") {
  const Spec by_itself = *Spec::parse("topk:density=auto");
  CHECK(by_itself.adapts());
  CHECK(by_itself.least_density == 0.001F);
  CHECK(by_itself.most_density == 0.1F);
  CHECK(by_itself.largest_density() == double(0.1F));
  CHECK(by_itself.density == Approx(0.01).epsilon(0.2));  // the scheme's usual one
  CHECK(by_itself.text().find("density=auto,") != std::string::npos);
  CHECK(*Spec::parse("topk:density=0.001..0.1") == by_itself);
  const Spec range = *Spec::parse("exdyna:density=0.002..0.5,bypass=never");
  CHECK(range.density == Approx(0.002));
  for (const Spec& spec : {by_itself, range}) {
    CHECK(*Spec::parse(spec.text()) == spec);
    CHECK(Spec::unpack(spec.pack()) == spec);
  }
  CHECK_FALSE(Spec::parse("topk")->adapts());
  for (const char* density : {"auto..1", "0.1..0.01", "0.1..0.1", "0..0.1", "0.1..2", "0.1..",
                              "..0.1", "0.1...0.2", "automatic", "nan..0.1"}) {
    check_says("topk:density=" + std::string(density), {density, "0.001..0.1"});
  }
  check_says("topk:density=auto,hierarchy=host", {"hierarchy=host", "a number"});
}

TEST_CASE("calls with a density that adapts may be quantised") {
  const Spec usual = *Spec::parse("topk:density=auto");
  CHECK_FALSE(usual.quantises());
  CHECK(usual == *Spec::parse("topk:density=auto,quantise=never"));
  CHECK_FALSE(coding_of(usual));
  const Spec any = *Spec::parse("ar-topk:density=auto,quantise=auto");
  for (const Form form : all_forms) CHECK(any.may_take(form) == (form <= Form::qsgd4));
  CHECK(any.form == Form::qsgd8);  // of the first call
  CHECK(any.density == 1);
  CHECK_FALSE(any.adapted_to_dense());
  CHECK(*coding_of(any) == *coding_of(*Spec::parse("qsgd:bits=8")));
  const Spec few = *Spec::parse("exdyna:quantise=qsgd4,density=0.001..0.5,bypass=never");
  CHECK(few.may_take(Form::qsgd4));
  CHECK_FALSE(few.may_take(Form::qsgd8));
  CHECK(*coding_of(few) == *coding_of(*Spec::parse("qsgd")));
  CHECK(coding_of(*Spec::parse("topk:density=auto,quantise=bf16"))->kind == Coding::Kind::bf16);
  CHECK_FALSE(coding_of(in_form(few, Form::none)));
  for (const Spec& spec : {any, few}) {
    CHECK(*Spec::parse(spec.text()) == spec);
    CHECK(Spec::unpack(spec.pack()) == spec);
    CHECK(spec.digest() != usual.digest());
  }
  check_says("topk:density=auto,quantise=sign",
             {"quantise is \"sign\"", "bf16, qsgd8, qsgd4, auto"});
  check_says("topk:density=0.1,quantise=qsgd8", {"density is fixed", "auto", "quantise"});
  check_says("topk:density=auto,objective=paper,quantise=auto", {"objective is paper", "ratio"});
}

TEST_CASE("auto has the schemes that it allows") {
  const Spec usual = *Spec::parse("auto");
  CHECK(usual.text().starts_with("auto:schemes=bf16+qsgd8+qsgd4+topk+ar-topk,density=auto,"));
  CHECK(&usual.stated() == &auto_scheme);
  CHECK(usual.form == Form::qsgd8);  // of the first call
  CHECK(*coding_of(usual) == *coding_of(*Spec::parse("qsgd:bits=8")));
  CHECK_FALSE(usual.sparse());
  const Spec two = *Spec::parse("auto:density=0.002..0.5,schemes=topk+exdyna,bypass=never,seed=7");
  CHECK(two == *Spec::parse("auto:schemes=exdyna+topk,seed=7,bypass=never,density=0.002..0.5"));
  CHECK(two.form == Form::topk);
  CHECK(two.scheme->name == "topk");
  CHECK(two.sparse());
  CHECK(two.density == Approx(0.01).epsilon(0.3));
  const Spec one = *Spec::parse("auto:schemes=onebit");
  CHECK(one.form == Form::onebit);
  CHECK(keeps_rest(one));
  for (const Spec& spec : {usual, two, one}) {
    CHECK(*Spec::parse(spec.text()) == spec);
    CHECK(Spec::unpack(spec.pack()) == spec);
    CHECK(spec.adapts());
  }
  CHECK(usual.digest() != two.digest());
  check_says("auto:schemes=topk+sign", {"schemes is \"topk+sign\"", "joined by +", "ar-topk"});
  check_says("auto:schemes=topk+topk", {"topk+topk", "joined by +"});
  check_says("auto:schemes=topk+", {"\"topk+\"", "joined by +"});
  check_says("auto:schemes=none", {"\"none\"", "bf16"});
  check_says("auto:density=0.01", {"density is fixed", "auto or a range"});
  check_says("auto:schemes=topk+onebit,feedback=0", {"feedback is 0", "1 with onebit"});
  CHECK(Spec::parse("auto:schemes=topk+int8,feedback=0"));
  check_says("auto:objective=paper", {"no key \"objective\"", "schemes, density"});
}

// In a call of every form, whatever the one before had.
TEST_CASE("a form of auto has its scheme's defaults") {
  Spec spec = *Spec::parse("auto:values=bf16,seed=3");
  for (const Form form : all_forms) {
    take_form(spec, form, 0.5);
    const Spec plain = spec_of(form);
    INFO(name_of(form));
    CHECK(spec.scheme == plain.scheme);
    CHECK(spec.choices == plain.choices);
    CHECK(spec.numbers == plain.numbers);
    CHECK(exchange_name(spec) == exchange_name(plain));
    CHECK(coding_of(spec) == coding_of(plain));
    CHECK(spec.values == DType::bf16);
    CHECK(spec.seed == 3);
    CHECK(is_coded(form) == coding_of(spec).has_value());
    CHECK(is_elected(form) == spec.sparse());
  }
  take_form(spec, Form::none, 1);
  CHECK(spec.adapted_to_dense());
  CHECK(exchange_name(spec) == "dense");
}

TEST_CASE("a density that adapts has an objective") {
  const Spec usual = *Spec::parse("topk:density=auto");
  CHECK(usual.objective == Objective::ratio);
  CHECK(usual.time_weight == 0.5);
  CHECK(*Spec::parse("topk:weight=0.5,objective=ratio,density=auto") == usual);
  const Spec paper = *Spec::parse("ar-topk:objective=paper,density=auto");
  CHECK(paper.objective == Objective::paper);
  CHECK(paper.time_weight == 0.6);
  CHECK(paper.digest() != Spec::parse("ar-topk:density=auto")->digest());
  const Spec weighed = *Spec::parse("exdyna:weight=0.25,density=0.01..1,objective=paper");
  CHECK(weighed.time_weight == 0.25);
  for (const Spec& spec : {usual, paper, weighed}) {
    CHECK(*Spec::parse(spec.text()) == spec);
    CHECK(Spec::unpack(spec.pack()) == spec);
  }
  check_says("topk:density=auto,objective=best", {"\"best\"", "ratio, paper"});
  for (const char* weight : {"0", "1.01", "nan", "-1"}) {
    check_says("topk:density=auto,weight=" + std::string(weight), {weight, "more than 0"});
  }
  for (const char* keys : {"objective=paper", "weight=0.7", "objective=paper,weight=0.5"}) {
    check_says("topk:density=0.1," + std::string(keys), {"density is fixed", "auto"});
  }
  CHECK(*Spec::parse("topk:objective=ratio,weight=0.5") == *Spec::parse("topk"));
}

TEST_CASE("every refusal lists what is known") {
  std::vector<std::string> known = schemes;
  known.emplace_back("\"topj\"");
  check_says("topj", known);
  check_says("", schemes);
  check_says("topk ", schemes);
  check_says("topk,density=0.1", {"NAME:key=value"});
  CHECK(refusal("topj").find("NAME:key=value") == std::string::npos);
  check_says("topk:foo=1", {"\"foo\"", "density", "exchange", "values", "feedback", "hierarchy",
                            "bypass", "nonfinite", "seed"});
  check_says("topk:election=variance", {"\"election\"", "density"});
  check_says("none:density=0.1", {"none has no keys", "\"density\""});
  check_says("topk:values=f64", {"values", "\"f64\"", "f32, bf16, f16"});
  check_says("topk:feedback=2", {"\"2\"", "0, 1"});
  check_says("ar-topk:election=best", {"\"best\"", "staleness, variance, variance-lagged"});
  check_says("topk:density=0.1,density=0.1", {"\"density\" comes twice"});
  for (const char* text : {"topk:", "topk:,", "topk:density", "topk:density=", "topk:=1",
                           "topk:density=0.1,", "topk:density=0.1,,seed=1"}) {
    check_says(text, {"expected key=value"});
  }
  for (const char* density : {"0", "-0.1", "1.001", "nan", "inf", "0.1x", "x", "1e999", " 0.1"}) {
    check_says("topk:density=" + std::string(density), {density, "more than 0 and at most 1"});
  }
  check_says("topk:seed=-1", {"\"-1\"", "0 to 2^64 - 1"});
  check_says("topk:seed=18446744073709551616", {"0 to 2^64 - 1"});
}

TEST_CASE("how many elements a density elects") {
  CHECK(elected_of(0.01, 1000) == 10);
  CHECK(elected_of(0.01, 99) == 1);
  CHECK(elected_of(0.01, 199) == 1);
  CHECK(elected_of(0.1, 3) == 1);
  CHECK(elected_of(1, 7) == 7);
  CHECK(elected_of(0.29, 100) == 28);  // 0.29 * 100 is below 29 in double
}

}  // namespace pith::test
