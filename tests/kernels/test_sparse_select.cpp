// The passes over accumulators: accumulate, select and their histograms.
#include "sparse_support.hpp"

namespace pith::kernels::test {
namespace {

constexpr float untouched = 12345.0f;  // behind the end of every buffer
constexpr std::size_t guard = 40;

struct Setup {
  DType type = DType::f32;
  bool gradient = true;
  bool fresh = false;
  bool histogram = false;
  float threshold = 1;
  std::size_t capacity = 0;
};

// All that a pass reads and writes.
struct State {
  std::vector<float> accumulator;
  Bytes gradient;
  std::size_t shift, offset;
  std::vector<std::uint32_t> indices;
  std::vector<float> values;
  PassResult result{77, 77, 77};
  std::vector<MagnitudeHistogram> histogram;  // one or none

  State(Kind kind, std::size_t count, std::size_t misalignment, const Setup& setup)
      : accumulator(floats_of(kind, count + misalignment + guard, 1)),
        gradient(as_type(floats_of(kind, count, 2), setup.type, misalignment)),
        shift(misalignment),
        offset(misalignment),
        indices(setup.capacity + guard, 99),
        values(setup.capacity + guard, untouched) {
    for (std::size_t i = 0; i < guard; ++i) accumulator[count + shift + i] = untouched;
    if (!setup.histogram) return;
    histogram.emplace_back();
    histogram.back().counts[5] = 3;
  }
  AccumulateKernel::Args pass(const Setup& setup, std::size_t count) {
    return {accumulator.data() + shift,
            setup.gradient ? gradient.data() + offset : nullptr,
            setup.type,
            count,
            setup.fresh,
            &result,
            setup.histogram ? &histogram.back() : nullptr};
  }
  SelectKernel::Args select(const Setup& setup, std::size_t count) {
    return {pass(setup, count), setup.threshold, 1000,
            indices.data(),     values.data(),   setup.capacity};
  }
};

bool same(const MagnitudeHistogram& a, const MagnitudeHistogram& b) {
  return a.counts == b.counts && std::equal(a.squares.begin(), a.squares.end(), b.squares.begin(),
                                            [](double x, double y) { return close(x, y); });
}

bool same(const State& a, const State& b, std::size_t capacity) {
  const auto listed = static_cast<std::ptrdiff_t>(std::min(a.result.selected, capacity));
  return test::same(a.accumulator, b.accumulator) && a.result.selected == b.result.selected &&
         a.result.nonfinite == b.result.nonfinite && close(a.result.squares, b.result.squares) &&
         std::equal(a.indices.begin(), a.indices.begin() + listed, b.indices.begin()) &&
         std::equal(a.values.begin(), a.values.begin() + listed, b.values.begin()) &&
         std::equal(a.indices.begin() + static_cast<std::ptrdiff_t>(capacity), a.indices.end(),
                    b.indices.begin() + static_cast<std::ptrdiff_t>(capacity)) &&
         std::equal(a.values.begin() + static_cast<std::ptrdiff_t>(capacity), a.values.end(),
                    b.values.begin() + static_cast<std::ptrdiff_t>(capacity)) &&
         (a.histogram.empty() || same(a.histogram.back(), b.histogram.back()));
}

void check(Kind kind, std::size_t count, std::size_t misalignment, const Setup& setup) {
  const State before(kind, count, misalignment, setup);
  State plain = before, fast = before;
  scalar::select(plain.select(setup, count));
  select(fast.select(setup, count));
  if (!same(fast, plain, setup.capacity)) {
    CAPTURE(count, misalignment, setup.threshold, setup.capacity, setup.fresh, setup.gradient);
    FAIL("select differs; kind " << int(kind) << " type " << name_of(setup.type));
  }
  plain = fast = before;
  scalar::accumulate(plain.pass(setup, count));
  accumulate(fast.pass(setup, count));
  if (!same(fast, plain, 0)) {
    CAPTURE(count, misalignment, setup.fresh, setup.gradient);
    FAIL("accumulate differs; kind " << int(kind) << " type " << name_of(setup.type));
  }
}

template <class Body>
void for_each_pass(Body body) {
  for (const DType type : value_types) {
    for (const bool fresh : {false, true}) {
      Setup setup;
      setup.type = type;
      setup.fresh = fresh;
      body(setup);
      setup.gradient = false;
      if (type == DType::f32) body(setup);
    }
  }
}

// Lines in the middle of the vector and at its end.
void check_sample(Kind kind, const Setup& setup) {
  constexpr std::size_t line = SampleKernel::line;
  constexpr std::size_t count = 3 * 70 + line;
  constexpr std::size_t lines = 4, stride = 70 - 17;
  State state(kind, count, 1, setup);
  const State before = state;
  std::vector<float> magnitudes(lines * line + 1, untouched);
  scalar::sample({state.pass(setup, count), lines, stride, magnitudes.data()});
  REQUIRE(test::same(state.accumulator, before.accumulator));
  REQUIRE(magnitudes.back() == untouched);
  PassResult result;
  for (std::size_t i = 0; i < lines * line; ++i) {
    const std::size_t at = i / line * stride + i % line;
    auto one = state.pass(setup, 1);
    one.accumulator += at;
    if (one.gradient) one.gradient += at * size_of(setup.type);
    one.result = &result;
    scalar::accumulate(one);
    const float expected = result.nonfinite > 0 ? 0.0f : std::fabs(*one.accumulator);
    if (magnitudes[i] != expected) FAIL("sample differs; kind " << int(kind) << " at " << i);
  }
}

TEST_CASE("a sample is of what the pass would leave") {
  for (const Kind kind : all_kinds) {
    for_each_pass([kind](const Setup& setup) { check_sample(kind, setup); });
  }
}

TEST_CASE("a pass over any count and alignment equals the plain twin") {
  for_each_target([] {
    for_each_pass([](Setup setup) {
      for (std::size_t count = 0; count <= 200; ++count) {
        setup.threshold = count % 3 == 0 ? 0.5f : 2.0f;
        setup.capacity = count % 5 == 0 ? count / 8 : count;
        setup.histogram = count % 7 == 0;
        check(Kind::normal, count, count % 4, setup);
        check(Kind::nonfinite, count, 0, setup);
      }
      SUCCEED();
    });
  });
}

TEST_CASE("thresholds and values of every kind give the plain twin's lists") {
  constexpr float inf = std::numeric_limits<float>::infinity();
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  for_each_target([&] {
    for_each_pass([&](Setup setup) {
      for (const Kind kind : all_kinds) {
        for (const float threshold :
             {0.0f, -0.0f, -1.0f, 1e-45f, 1e-40f, 0.75f, 1.5f, 2.6f, 3e38f, inf, -inf, nan}) {
          setup.threshold = threshold;
          setup.capacity = 1003;
          check(kind, 1003, 1, setup);
          setup.capacity = 130;
          setup.histogram = !setup.histogram;
          check(kind, 1003, 0, setup);
        }
      }
      SUCCEED();
    });
  });
}

TEST_CASE("a list that is full leaves the others where they are, and counts them") {
  for_each_target([] {
    Setup setup;
    setup.threshold = 0.5f;
    for (std::size_t capacity = 0; capacity <= 700; capacity += capacity < 80 ? 1 : 97) {
      setup.capacity = capacity;
      check(Kind::normal, 1000, 0, setup);
    }
    SUCCEED();
  });
}

TEST_CASE("long passes equal the plain twin") {
  for_each_target([] {
    for_each_pass([](Setup setup) {
      setup.capacity = 5000;
      setup.threshold = 1.7f;
      setup.histogram = !setup.fresh;
      check(Kind::normal, 20'003, 0, setup);
    });
    Setup setup;
    setup.capacity = 10'000;
    setup.threshold = 2.6f;
    check(Kind::normal, 300'001, 0, setup);
    SUCCEED();
  });
}

void check_histogram(Kind kind, std::size_t count, std::size_t shift) {
  const auto values = floats_of(kind, count + shift, 9);
  MagnitudeHistogram plain, fast;
  plain.counts[7] = fast.counts[7] = 11;
  for (int twice = 0; twice < 2; ++twice) {
    scalar::histogram({values.data() + shift, count, &plain});
    histogram({values.data() + shift, count, &fast});
  }
  REQUIRE(same(plain, fast));
}

TEST_CASE("histograms equal the plain twin's") {
  for_each_target([] {
    for (const Kind kind : all_kinds) {
      for (const std::size_t count : {0, 1, 5, 4095, 4096, 4097, 50'000}) {
        for (const std::size_t shift : {0, 1}) check_histogram(kind, count, shift);
      }
    }
  });
}

}  // namespace
}  // namespace pith::kernels::test
