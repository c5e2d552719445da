// 16-bit gradients: every scheme, in every form of a call, does with them what it does with the
// same numbers in float32, which other tests hold against the plain references. Results are the
// same sums, rounded once; what is left over is the same, to the bit.
#include <cmath>
#include <limits>
#include <utility>

#include "tests/catch.hpp"
#include "tests/collectives/host_layouts.hpp"
#include "tests/collectives/scheme_conformance.hpp"
#include "tests/sanitized.hpp"

namespace pith::test {

namespace {

// And what is not a variant of one.
std::vector<std::string> all_specs() {
  std::vector<std::string> specs = specs_of(scheme_tests(), 0.05);
  specs.insert(specs.end(),
               {"topk:density=0.9,bypass=auto", "exdyna:density=0.05,values=f16,nonfinite=drop"});
  return specs;
}

bool equal(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

std::string compare(SparseProgram& narrow, SparseProgram& wide) {
  const SparseCase& c = narrow.sparse_case();
  for (int r = 0; r < c.ranks; ++r) {
    for (std::size_t t = 0; t < c.counts.size(); ++t) {
      const std::vector<float> left = narrow.residual(r, t);
      const std::vector<float> expected = wide.residual(r, t);
      for (std::size_t i = 0; i < left.size(); ++i) {
        const float exact = wide.result(r, t)[i];
        const float sum = exact == 0 ? exact : narrowed(exact, c.type);  // most of them
        const bool right = equal(narrow.result(r, t)[i], sum) && equal(left[i], expected[i]);
        if (right) continue;
        return fmt::format("rank {}, tensor {}, element {}: {} and {} left, expected {} and {}", r,
                           t, i, narrow.result(r, t)[i], left[i], sum, expected[i]);
      }
    }
  }
  return {};
}

// What becomes of a gradient at a step: of rank 0's first tensor.
using Spoil = void (*)(std::vector<float>& gradient, int step);

void leave(std::vector<float>&, int) {}
void make_infinite(std::vector<float>& gradient, int step) {
  if (step == 2) gradient[3] = std::numeric_limits<float>::infinity();
}
// The sum of which float16 does not hold.
void make_large(std::vector<float>& gradient, int step) {
  if (step == 1) gradient[5] = 60000;
}

std::string run_beside_wide(SparseCase c, int steps, Spoil spoil = leave) {
  SparseProgram narrow(c);
  const DType type = std::exchange(c.type, DType::f32);
  SparseProgram wide(c);
  const auto world = world_with_hosts(c);
  const auto other = world_with_hosts(c);
  for (int step = 0; step < steps; ++step) {
    narrow.draw(static_cast<std::uint64_t>(step));
    for (int r = 0; r < c.ranks; ++r) {
      spoil(narrow.gradient(r), r == 0 || spoil == make_large ? step : -1);
      for (std::size_t t = 0; t < c.counts.size(); ++t) {
        for (float& value : narrow.gradient(r, t)) value = narrowed(value, type);
        wide.gradient(r, t) = narrow.gradient(r, t);
      }
    }
    std::string failure = wide.step(*other);
    if (failure.empty()) failure = narrow.step(*world);
    if (failure.empty()) failure = compare(narrow, wide);
    if (!failure.empty()) {
      return fmt::format("{} of {}, step {}: {}", describe(c), name_of(type), step, failure);
    }
  }
  return world->leaks() + other->leaks();
}

SparseCase case_of(const std::string& spec, DType type, int ranks) {
  SparseCase c;
  c.spec = spec;
  c.type = type;
  c.ranks = ranks;
  c.counts = {300, 0, 20000, 1};
  c.chunk_bytes = 1024;
  return c;
}

constexpr DType narrow_types[] = {DType::f16, DType::bf16};

// each(spec, number of the type and of the spec, added)
template <class Each>
void for_each_spec_and_type(Each each) {
  int which = 0;
  for (const std::string& spec : all_specs()) {
    ++which;
    for (int t = 0; t < 2; ++t) each(spec, narrow_types[t], which + t);
  }
}

}  // namespace

TEST_CASE("16-bit gradients of every scheme", "[sparse][narrow]") {
  constexpr int sizes[] = {1, 2, 5};
  for_each_spec_and_type([&](const std::string& spec, DType type, int which) {
    for (int i = 0; i < 3; ++i) {
      SparseCase c = case_of(spec, type, sizes[i]);
      c.average = sizes[i] == 5;
      if (is_turn(which, 2 * i, 6)) CHECK(run_beside_wide(c, 4) == "");
      c.in_place = true;
      if (is_turn(which, 2 * i + 1, 6)) CHECK(run_beside_wide(c, 3) == "");
    }
  });
}

TEST_CASE("16-bit gradients that are not finite, or whose sums are not", "[sparse][narrow][long]") {
  for_each_spec_and_type([](const std::string& spec, DType type, int which) {
    const SparseCase c = case_of(spec, type, 3);
    if (is_turn(which, 0, 4)) CHECK(run_beside_wide(c, 4, make_infinite) == "");
    if (is_turn(which, 2, 4)) CHECK(run_beside_wide(c, 4, make_large) == "");
  });
}

TEST_CASE("16-bit gradients by host", "[sparse][narrow][by-host][long]") {
  for_each_spec_and_type([](const std::string& spec, DType type, int which) {
    const std::string by_host = fmt::format("{},hierarchy=host", spec);
    if (!Spec::parse(by_host)) return;  // it has no election, or is not summed by host
    SparseCase c = case_of(by_host, type, 5);
    c.hosts = {0, 1, 0, 1, 1};
    if (is_turn(which, 0, 4)) CHECK(run_beside_wide(c, 4) == "");
    if (is_turn(which, 2, 4)) CHECK(run_beside_wide(c, 4, make_infinite) == "");
  });
}

}  // namespace pith::test
