// bypass=auto with a fixed density: which way calls go by measured times, and what trying costs.
#include "model/bypass_choice.hpp"
#include "model/nominal.hpp"

#include <functional>

#include "model/model.hpp"
#include "tests/catch.hpp"

namespace pith::test {

namespace {

constexpr std::size_t count = 1'000'000;

// A vector whose calls take the times it is given.
struct Timed {
  using Seconds = std::function<double(bool dense)>;

  explicit Timed(const char* text, int ranks = 4) : spec(*Spec::parse(text)), model(ranks) {}

  // The call's time.
  double call(const Seconds& seconds) {
    if (step == 0) control = model.start_bypass(spec, count, 0);
    const bool agrees = step == control.next;
    if (agrees) {
      ++agreements;
      model.adapt_bypass(spec, {step, timed_s, false}, control);
    }
    const double took = seconds(control.dense);
    if (agrees) timed_s = took;
    dense_calls += control.dense ? 1 : 0;
    ++step;
    return took;
  }
  double calls(int n, const Seconds& seconds) {
    double sum = 0;
    for (int i = 0; i < n; ++i) sum += call(seconds);
    return sum;
  }
  // But for a trial.
  bool is_dense() const { return control.dense != (control.phase == BypassControl::Phase::tries); }
  // That a link and nominal cores would take.
  Seconds on(LinkCost link) const {
    const WayCosts costs = ways_of(spec, count, model.ranks(), link);
    return [costs, link](bool dense) { return costs.of(dense).seconds(link.alpha, link.beta); };
  }

  Spec spec;
  Model model;
  BypassControl control;
  std::uint64_t step = 0;
  double timed_s = 0;
  int dense_calls = 0;
  int agreements = 0;
};

Timed::Seconds ways(double compressed, double dense) {
  return [=](bool is_dense) { return is_dense ? dense : compressed; };
}

constexpr LinkCost slow{50e-6, 80e-9, 0};
constexpr LinkCost fast{2e-6, 0.01e-9, 0};

}  // namespace

TEST_CASE("the faster way is found within ten calls, whatever is nominal", "[bypass]") {
  for (const double ratio : {0.3, 0.5, 0.9, 1.1, 2.0, 3.5}) {
    INFO("dense takes " << ratio << " times as long");
    Timed vector("topk:density=0.03");
    const double usual = vector.on(nominal::wire)(false);
    vector.calls(10, ways(usual, ratio * usual));
    CHECK(vector.control.dense == (ratio < 1));
  }
  Timed wrong("topk:density=0.1", 8);
  CHECK(wrong.model.start_bypass(wrong.spec, count, 0).dense);
  wrong.calls(10, wrong.on(slow));
  CHECK_FALSE(wrong.control.dense);
}

TEST_CASE("where messages travel long ranks agree less often", "[bypass]") {
  const auto agreements = [](Timed&& vector, double of_dense) {
    const double usual = vector.on(vector.model.link())(false);
    vector.calls(16, ways(usual, of_dense * usual));
    CHECK(vector.is_dense() == (of_dense < 1));
    return vector.agreements;
  };
  for (const double of_dense : {0.5, 2.0}) {
    Timed far("topk:density=0.03");
    far.model.set_round_trip(10e-3);
    const int by_far = agreements(std::move(far), of_dense);
    CHECK(by_far <= 5);
    CHECK(by_far < agreements(Timed("topk:density=0.03"), of_dense));
  }
}

TEST_CASE("a way that the link rules out is tried when that costs a hundredth", "[bypass]") {
  Timed vector("topk:density=0.01");
  const auto seconds = vector.on(slow);
  const double ratio = seconds(true) / seconds(false);
  REQUIRE(ratio > 10);
  vector.calls(500, seconds);
  CHECK(vector.dense_calls == 0);
  const int many = 200'000;
  double sum = 0;
  int tried = 0;
  for (int i = 0; i < many; ++i) {
    sum += vector.call(seconds);
    tried = vector.control.dense ? tried + 1 : 0;
    REQUIRE(tried <= 2);  // at a time
  }
  CHECK(vector.dense_calls >= 4);
  CHECK(sum < 1.01 * many * seconds(false));
}

TEST_CASE("trials in vain become rare, and cost at most a hundredth", "[bypass]") {
  for (const double ratio : {1.0, 1.2, 2.0, 3.9, 4.1, 20.0}) {
    INFO("dense takes " << ratio << " times as long");
    Timed vector("topk:density=0.01");
    const double usual = vector.on(nominal::wire)(false);
    const auto seconds = ways(usual, ratio * usual);
    vector.calls(100, seconds);
    const int first = vector.dense_calls;
    const int many = 10'000;
    CHECK(vector.calls(many, seconds) < 1.01 * many * usual);
    CHECK(vector.dense_calls > first);
    CHECK(vector.dense_calls - first < 40);
    CHECK(vector.agreements < 100 + many / 32 + 80);
  }
}

TEST_CASE("a link that changes is followed within 80 calls", "[bypass]") {
  Timed vector("topk:density=0.01");
  for (int round = 0; round < 3; ++round) {
    vector.calls(80, vector.on(slow));
    CHECK_FALSE(vector.is_dense());
    vector.calls(100 + 37 * round, vector.on(slow));
    CHECK_FALSE(vector.is_dense());
    vector.calls(80, vector.on(fast));
    CHECK(vector.is_dense());
    vector.calls(100 + 37 * round, vector.on(fast));
    CHECK(vector.is_dense());
  }
}

// Else a choice would be for noise.
TEST_CASE("a way is left for a twentieth, and single late calls change nothing", "[bypass]") {
  Timed vector("topk:density=0.03");
  const double usual = vector.on(nominal::wire)(false);
  vector.calls(300, ways(usual, 0.97 * usual));
  CHECK_FALSE(vector.control.dense);
  CHECK(vector.dense_calls > 0);
  CHECK(vector.dense_calls < 20);
  Timed noisy("topk:density=0.01");
  int at = 0;
  noisy.calls(1000,
              [&](bool dense) { return (dense ? 1.5 : 1.0) * (++at % 5 == 0 ? 10 : 1) * usual; });
  CHECK_FALSE(noisy.control.dense);
  CHECK(noisy.control.seconds[0] == usual);
}

TEST_CASE("where nothing can change nothing is agreed on", "[bypass]") {
  const auto next = [](const Model& model, const char* spec, std::size_t n) {
    return model.start_bypass(*Spec::parse(spec), n, 7).next;
  };
  CHECK(next(Model(4), "topk:density=0.01", count) == 8);
  CHECK(next(Model(8), "topk:density=0.1", count) == 8);
  CHECK(next(Model(1), "topk:density=0.01", count) == BypassControl::never);
  CHECK(next(Model(4), "topk:density=0.01", 0) == BypassControl::never);
  CHECK(next(Model(64), "topk:density=0.5", count) == BypassControl::never);
  CHECK(next(Model(2), "topk:density=0.9", count) == BypassControl::never);
  Settings settings;
  settings.deterministic = true;
  CHECK(next(Model(settings, 4), "topk:density=0.01", count) == BypassControl::never);
}

TEST_CASE("with a vector on a device the nominal way is taken", "[bypass]") {
  Timed vector("topk:density=0.01");
  vector.calls(10, vector.on(fast));
  REQUIRE(vector.control.dense);
  vector.model.adapt_bypass(vector.spec, {10, 0, true}, vector.control);
  CHECK_FALSE(vector.control.dense);
  CHECK(vector.control.next == BypassControl::never);
}

TEST_CASE("a call whose time is not known is no sample", "[bypass]") {
  Timed vector("topk:density=0.01");
  vector.call(vector.on(fast));
  for (std::uint64_t step = 1; step < 20; ++step) {
    vector.model.adapt_bypass(vector.spec, {step, 0, false}, vector.control);
    CHECK(vector.control.next == step + 1);
    CHECK(vector.control.sampled == 0);
  }
}

}  // namespace pith::test
