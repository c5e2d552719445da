// Who leads in AR-Topk; what it has in common with other schemes: test_schemes.cpp.
#include <functional>
#include <limits>
#include <set>

#include "collectives/sparse/notes.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/ar_topk_reference.hpp"
#include "tests/collectives/rounded.hpp"
#include "tests/sanitized.hpp"

namespace pith::test {

namespace {

constexpr const char* elections[] = {
    "election=staleness",
    "election=variance,score=compressed",
    "election=variance,score=raw",
    "election=variance-lagged,score=compressed",
    "election=variance-lagged,score=raw",
};

// What becomes of the gradients of a step before it is made.
using Change = std::function<void(SparseProgram& program, int step)>;

void scale(SparseProgram& program, float factor) {
  const SparseCase& c = program.sparse_case();
  for (int r = 0; r < c.ranks; ++r) {
    for (std::size_t t = 0; t < c.counts.size(); ++t) {
      for (float& value : program.gradient(r, t)) value *= factor;
    }
  }
}

// Sums of a few thousand of them are exact in any order.
void make_integers(SparseProgram& program, int) {
  const SparseCase& c = program.sparse_case();
  for (int r = 0; r < c.ranks; ++r) {
    for (std::size_t t = 0; t < c.counts.size(); ++t) {
      for (float& value : program.gradient(r, t)) value = std::round(1000 * value);
    }
  }
}

struct Outcome {
  std::string failure;  // empty is good
  std::vector<int> leaders;
};

Outcome run(const SparseCase& c, int steps, const Change& change = {},
            const std::vector<int>& order = {}) {
  SparseProgram program(c);
  World world(world_of(c));
  if (!order.empty()) world.set_order(RankOrder(order));
  ArTopkReference reference(c);
  for (int step = 0; step < steps; ++step) {
    program.draw(static_cast<std::uint64_t>(step));
    if (change) change(program, step);
    std::string failure = program.step(world);
    if (failure.empty()) failure = reference.check(program);
    if (!failure.empty()) {
      return {fmt::format("{}, step {}: {}", describe(c), step, failure), reference.leaders};
    }
  }
  return {world.leaks(), reference.leaders};
}

std::string spec_of(std::string_view density, std::string_view rest) {
  return fmt::format("ar-topk:density={},{}", density, rest);
}

}  // namespace

// Their squares leave float32's range on either side, as sums of them do.
TEST_CASE("elections by norms beyond the squares that float32 holds", "[ar-topk]") {
  for (const float factor : {1e-40f, 1e-25f, 1e25f, 1e35f}) {
    // Rank 2 has most to say, then rank 1.
    const auto change = [factor](SparseProgram& program, int) {
      scale(program, factor);
      for (int r = 1; r < 3; ++r) {
        for (float& value : program.gradient(r)) value *= r == 2 ? 64.0f : 8.0f;
      }
    };
    for (const char* election : elections) {
      for (const char* values : {"f32", "bf16"}) {
        SparseCase c;
        c.ranks = 3;
        c.counts = {2000};
        c.spec = spec_of("0.05", fmt::format("{},values={}", election, values));
        const Outcome outcome = run(c, 7, change);
        CHECK(outcome.failure == "");
        INFO(c.spec << ", times " << factor);
        const std::string_view name = election;
        if (name.find("variance") != name.npos) CHECK(outcome.leaders[1] == 2);
      }
    }
  }
}

TEST_CASE("scores of any size are told exactly along with sums", "[ar-topk]") {
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    const Notes notes(type, 3, true);
    std::vector<float> sums(notes.count());
    const double scores[] = {1.0 / 3 * 1e-88, 0, 2.0 / 3 * 1e80};
    for (int r = 0; r < 3; ++r) {
      std::vector<float> own(notes.count());
      notes.write(own, r, r == 1, scores[r]);
      for (std::size_t i = 0; i < own.size(); ++i) sums[i] += rounded(own[i], type);
    }
    for (int r = 0; r < 3; ++r) CHECK(notes.score(sums, r) == scores[r]);
    CHECK(Notes::nonfinite(sums));
    for (float& note : sums) note = std::numeric_limits<float>::quiet_NaN();
    CHECK(notes.score(sums, 1) == 0);
  }
  CHECK(score_of(std::numeric_limits<double>::infinity()) == std::numeric_limits<double>::max());
  CHECK(score_of(std::numeric_limits<double>::quiet_NaN()) == 0);
  CHECK(score_of(-1) == 0);
}

// Scores are equal at first, and again whenever all residuals are.
TEST_CASE("in any order of the ranks the lowest rank leads among equals", "[ar-topk]") {
  const auto equal = [](SparseProgram& program, int step) {
    make_integers(program, step);
    for (int r = 1; r < 4 && step % 2 == 0; ++r) program.gradient(r) = program.gradient(0);
  };
  for (const char* election : elections) {
    SparseCase c;
    c.ranks = 4;
    c.counts = {500};
    c.spec = spec_of("0.05", election);
    const Outcome outcome = run(c, 12, equal, {2, 3, 1, 0});
    CHECK(outcome.failure == "");
    CHECK(outcome.leaders[0] == 0);
  }
}

TEST_CASE("with lagged scores every rank leads within 5 N steps", "[ar-topk]") {
  // Rank 1 has by far the largest gradients.
  const auto loud = [](SparseProgram& program, int) {
    for (float& value : program.gradient(1)) value *= 100;
  };
  for (const char* score : {"compressed", "raw"}) {
    const int ranks = 4;
    SparseCase c;
    c.ranks = ranks;
    c.counts = {200};
    c.spec = spec_of("0.05", fmt::format("election=variance-lagged,score={}", score));
    const Outcome outcome = run(c, 15 * ranks, loud);
    REQUIRE(outcome.failure == "");
    const std::vector<int>& leaders = outcome.leaders;
    CHECK(std::count(leaders.begin(), leaders.end(), 1) > 30);
    for (std::size_t step = 0; step + 5 * ranks <= leaders.size(); ++step) {
      const auto begin = leaders.begin() + static_cast<std::ptrdiff_t>(step);
      CHECK(std::set<int>(begin, begin + 5 * ranks).size() == 4);
    }
  }
}

TEST_CASE("a changed scale changes no election by raw norms", "[ar-topk]") {
  for (const char* election : {"variance", "variance-lagged"}) {
    std::vector<int> leaders[2];
    for (const int scaled : {0, 1}) {
      SparseCase c;
      c.ranks = 4;
      c.counts = {200, 0, 90};
      c.spec = fmt::format("ar-topk:density=0.1,election={},score=raw", election);
      SparseProgram program(c);
      SimConfig config;
      config.ranks = c.ranks;
      World world(config);
      HostCompute host;
      constexpr float factor = 1.0f / 1024;
      for (int step = 0; step < 16; ++step) {
        program.draw(static_cast<std::uint64_t>(step));
        for (int r = 0; r < c.ranks; ++r) {
          for (std::size_t t = 0; t < c.counts.size() && scaled != 0 && step >= 5; ++t) {
            if (step == 5) program.compressor(r, t).scale(host, factor);
            for (float& value : program.gradient(r, t)) value *= factor;
          }
        }
        REQUIRE(program.step(world) == "");
        leaders[scaled].push_back(program.compressor(0).stats.leader);
      }
    }
    CHECK(leaders[0] == leaders[1]);
  }
}

}  // namespace pith::test
