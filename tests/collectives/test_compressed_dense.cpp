// Compressed calls that move every element: none, bf16, and what bypass=auto makes dense; and what
// many small tensors cost.
#include <algorithm>

#include "collectives/sparse/bf16_cost.hpp"
#include "kernels/scalar.hpp"
#include "model/bypass.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/sparse_program.hpp"

namespace pith::test {

namespace {

float rounded(float value) {
  using kernels::scalar::decode;
  using kernels::scalar::encode;
  return static_cast<float>(decode<kernels::Bfloat16>(encode<kernels::Bfloat16>(value)));
}

// In rank order, as bf16 is defined; `none` may sum in any order.
float sum_of(SparseProgram& program, bool rounds, std::size_t tensor, std::size_t i) {
  float sum = 0;
  for (int r = 0; r < program.sparse_case().ranks; ++r) {
    const float value = program.gradient(r, tensor)[i];
    sum = r == 0 ? (rounds ? rounded(value) : value) : sum + (rounds ? rounded(value) : value);
  }
  if (rounds && program.sparse_case().ranks > 1) sum = rounded(sum);
  return program.sparse_case().average ? sum / float(program.sparse_case().ranks) : sum;
}

std::string check_step(SparseProgram& program, bool rounds) {
  const SparseCase& c = program.sparse_case();
  for (std::size_t t = 0; t < c.counts.size(); ++t) {
    for (std::size_t i = 0; i < c.counts[t]; ++i) {
      const float expected = sum_of(program, rounds, t, i);
      const float found = program.result(0, t)[i];
      const bool right = rounds ? found == expected : std::fabs(found - expected) < 1e-6f;
      if (!right) return fmt::format("tensor {}, element {}: {} and not {}", t, i, found, expected);
    }
    for (int r = 0; r < c.ranks; ++r) {
      if (!program.compressor(r, t).residual_is_zero()) return "something is left";
    }
  }
  return {};
}

std::string run_dense(const SparseCase& c, int steps) {
  SparseProgram program(c);
  World world(world_of(c));
  for (int step = 0; step < steps; ++step) {
    program.draw(static_cast<std::uint64_t>(step));
    std::string failure = program.step(world);
    if (failure.empty()) failure = check_step(program, c.spec == "bf16");
    if (!failure.empty()) return fmt::format("{}, step {}: {}", describe(c), step, failure);
  }
  return world.leaks();
}

// Messages that one rank sends in a call.
std::size_t sends_of(const SparseCase& c) {
  SparseProgram program(c);
  SimConfig config;
  config.ranks = c.ranks;
  World world(config);
  world.record();
  program.draw(0);
  CHECK(program.step(world) == "");
  const std::vector<Step> steps = world.recorder(0).steps();
  return static_cast<std::size_t>(std::count_if(
      steps.begin(), steps.end(), [](const Step& step) { return step.op == Step::Op::send; }));
}

}  // namespace

TEST_CASE("dense specs sum everything", "[sparse]") {
  for (const char* spec : {"none", "bf16", "topk:density=1,bypass=auto"}) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      for (const std::vector<std::size_t>& counts : std::vector<std::vector<std::size_t>>{
               {1}, {2}, {1000}, {4099}, {0}, {10, 0, 3000, 1, 777}}) {
        SparseCase c;
        c.ranks = ranks;
        c.counts = counts;
        c.spec = spec;
        c.average = counts.size() > 1;
        // One rank has nothing to gain from being dense.
        if (ranks == 1 && c.spec.find("topk") == 0) continue;
        if (counts[0] == 0 && counts.size() == 1 && c.spec.find("topk") == 0) continue;
        CHECK(run_dense(c, 3) == "");
      }
    }
  }
}

TEST_CASE("bf16 in several parcels", "[sparse]") {
  SparseCase c;
  c.ranks = 3;
  c.counts = {5, (std::size_t{1} << 20) + 77, 900000};
  c.spec = "bf16";
  CHECK(run_dense(c, 1) == "");
}

TEST_CASE("many small tensors cost the messages of one large one", "[sparse]") {
  for (const char* spec : {"topk:density=0.01", "none", "bf16"}) {
    INFO(spec);
    SparseCase one;
    one.ranks = 4;
    one.counts = {100'000};
    one.spec = spec;
    SparseCase many = one;
    many.counts = std::vector<std::size_t>(100, 1000);
    const std::size_t sends = sends_of(one);
    CHECK(sends > 0);
    CHECK(sends_of(many) == sends);
  }
}

TEST_CASE("what is faster dense", "[sparse]") {
  const auto faster = [](const char* spec, std::size_t count, int ranks, bool views) {
    return is_faster_dense(*Spec::parse(spec), count, ranks, views);
  };
  CHECK_FALSE(faster("topk:density=1", 1000, 1, true));
  CHECK_FALSE(faster("topk:density=0.01", 0, 4, true));
  for (const bool views : {false, true}) {
    CHECK(faster("topk:density=0.9", 1'000'000, 2, views));
    CHECK(faster("topk:density=0.1", 1'000'000, 64, views));
    CHECK(faster("ar-topk:density=0.9", 1'000'000, 8, views));
  }
  CHECK_FALSE(faster("topk:density=0.01", 10'000'000, 8, false));
  CHECK_FALSE(faster("topk:density=0.001", 10'000'000, 64, false));
  CHECK_FALSE(faster("ar-topk:density=0.01", 10'000'000, 64, false));
}

TEST_CASE("bf16 costs what its model says", "[compressed][cost]") {
  for (const std::size_t count : {std::size_t{1000}, std::size_t{1} << 20, std::size_t{2100000}}) {
    for (const int ranks : {2, 4, 8, 17}) {
      SparseCase c;
      c.ranks = ranks;
      c.counts = {count};
      c.spec = "bf16";
      SparseProgram program(c);
      for (const LinkCost& link : {LinkCost{2e-6, 1e-9, 0}, {1e-4, 1e-9, 0}, {1e-2, 1e-9, 0}}) {
        SimConfig config;
        config.link = {link.alpha, link.beta};
        World world(world_of(c, config));
        REQUIRE(program.step(world) == "");
        const double off = world.elapsed_s() / bf16_cost({ranks, count}, link) - 1;
        INFO(describe(c) << ", alpha " << link.alpha << ": off by " << off);
        CHECK(std::fabs(off) < 0.05);
      }
    }
  }
}

}  // namespace pith::test
