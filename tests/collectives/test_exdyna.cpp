// ExDyna and MiCRO against their authors' algorithm bit for bit, and our rules against what they
// promise.
#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "tests/catch.hpp"
#include "tests/collectives/hard_gradients.hpp"
#include "tests/reference/exdyna_twin.hpp"
#include "tests/sanitized.hpp"

namespace pith::test {

namespace {

// What all ranks hold of partitions and threshold, beside the twin's; empty is good.
std::string compare_control(SparseProgram& program, const ExdynaTwin& twin) {
  const int ranks = program.sparse_case().ranks;
  for (int r = 0; r < ranks; ++r) {
    const ExdynaControl& control = program.compressor(r).exdyna;
    if (control.threshold().lambda() != twin.lambda) {
      return fmt::format("rank {}: lambda is {}, expected {}", r, control.threshold().lambda(),
                         twin.lambda);
    }
    for (int p = 0; p < ranks; ++p) {
      const auto at = static_cast<std::size_t>(p);
      if (control.partition().begin(at) != twin.begin(p)) {
        return fmt::format("rank {}: partition {} begins at {}, expected {}", r, p,
                           control.partition().begin(at), twin.begin(p));
      }
    }
  }
  return {};
}

std::string compare_step(SparseProgram& program, const ExdynaTwin& twin) {
  const int ranks = program.sparse_case().ranks;
  const auto counts = program.compressor(0).exdyna.by_partition();
  for (int p = 0; p < ranks; ++p) {
    const auto at = static_cast<std::size_t>(p);
    if (static_cast<long>(counts[at]) != twin.counts[at]) {
      return fmt::format("partition {}: {} elected, expected {}", p, counts[at], twin.counts[at]);
    }
  }
  if (program.compressor(0).taken().count() != twin.elected.size() ||
      !std::equal(twin.elected.begin(), twin.elected.end(),
                  program.compressor(0).taken().indices())) {
    return "other indices";
  }
  if (program.result(0) != twin.result) return "another result";
  for (int r = 0; r < ranks; ++r) {
    if (program.residual(r) != twin.residuals[static_cast<std::size_t>(r)]) {
      return fmt::format("rank {}: another residual", r);
    }
  }
  return {};
}

// Those that schemes are compared at.
const char* density_in_turn(int& turn) {
  constexpr std::array densities = {"0.1", "0.033", "0.011", "0.004", "0.001"};
  return densities[static_cast<std::size_t>(turn++) % densities.size()];
}

// What becomes of the gradients of a step before it is made.

struct Walk {
  Change change = {};
  std::vector<int> order = {};  // of the ranks; none: by rank
};

std::string run_beside_twin(const SparseCase& c, int steps, const Walk& walk = {}) {
  SparseProgram program(c);
  World world(world_of(c));
  if (!walk.order.empty()) world.set_order(RankOrder(walk.order));
  const Spec spec = *Spec::parse(c.spec);
  ExdynaTwin twin(c.counts[0], c.ranks, spec.density, spec.rule == Rule::intended,
                  spec.scheme == Scheme::micro);
  for (int step = 0; step < steps; ++step) {
    program.draw(static_cast<std::uint64_t>(step));
    if (walk.change) walk.change(program, step);
    twin.prepare();
    std::string failure = step == 0 ? "" : compare_control(program, twin);
    std::vector<const std::vector<float>*> gradients;
    for (int r = 0; r < c.ranks; ++r) gradients.push_back(&program.gradient(r));
    if (failure.empty()) failure = program.step(world);
    twin.run(gradients);
    if (failure.empty()) failure = compare_step(program, twin);
    if (!failure.empty()) return fmt::format("{}, step {}: {}", describe(c), step, failure);
  }
  return world.leaks();
}

void check_rules(const char* scheme, std::initializer_list<std::size_t> counts) {
  int turn = 0;
  for (const char* rule : {"released", "intended"}) {
    const std::vector<int> some = {1, 3, 8, 17};
    for (const int ranks : full ? std::vector<int>{1, 2, 3, 5, 8, 16, 17} : some) {
      for (const std::size_t count : counts) {
        for (const char* density : {"0.01", density_in_turn(turn)}) {
          SparseCase c;
          c.ranks = ranks;
          c.counts = {count};
          c.spec = fmt::format("{}:density={},rule={}", scheme, density, rule);
          CHECK(run_beside_twin(c, 100) == "");
        }
      }
    }
  }
}

}  // namespace

TEST_CASE("released and intended are the authors' ExDyna, bit for bit", "[sparse][exdyna]") {
  check_rules("exdyna", {100, 5000, 33000});
  for (const char* rule : {"released", "intended"}) {
    SparseCase large;
    large.ranks = 3;
    large.counts = {200000};
    large.spec = fmt::format("exdyna:density=0.001,rule={}", rule);
    CHECK(run_beside_twin(large, 100) == "");
  }
}

// Sums meet in the order of the ranks: integers are exact in any.
TEST_CASE("in any order of the ranks partitions are those of the authors", "[sparse][exdyna]") {
  for (const char* scheme : {"exdyna", "micro"}) {
    for (const char* rule : {"released", "intended"}) {
      SparseCase c;
      c.ranks = 4;
      c.counts = {5000};
      c.integers = true;
      c.spec = fmt::format("{}:density=0.01,rule={}", scheme, rule);
      CHECK(run_beside_twin(c, 10, {.order = {2, 3, 1, 0}}) == "");
    }
  }
}

TEST_CASE("gradients that leave ExDyna little choice", "[sparse][exdyna]") {
  for (const Change& change : hard_gradients()) {
    for (const char* scheme : {"exdyna", "micro"}) {
      for (const char* rule : {"released", "intended"}) {
        for (const std::size_t count : {100, 40000}) {
          SparseCase c;
          c.ranks = 3;
          c.counts = {count};
          c.spec = fmt::format("{}:density=0.01,rule={}", scheme, rule);
          CHECK(run_beside_twin(c, 5, {.change = change}) == "");
        }
      }
    }
  }
}

TEST_CASE("MiCRO is its authors', bit for bit", "[sparse][exdyna]") {
  check_rules("micro", {5, 100, 33333});
}

}  // namespace pith::test
