// Many ranks: a ring of 1,024 and recursive doubling of 4,096. How long they take is measured by
// perf/sim_bench; here the results must be right, at a cost in memory that leaves room.
#include "tests/catch.hpp"
#include "tests/collectives/dense_program.hpp"

namespace pith::test {

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int reduction = 8;
#else
constexpr int reduction = 1;
#endif

std::string run_at_scale(std::string_view name, int ranks, std::size_t count) {
  DenseCase c;
  c.algorithm = find_algorithm(Collective::allreduce, name);
  c.ranks = ranks / reduction;
  c.count = count;
  c.tuning = {};
  return run_case(c, {});
}

}  // namespace

TEST_CASE("a ring of 1,024 ranks", "[collectives][scale]") {
  CHECK(run_at_scale("ring", 1024, 1024) == "");
}

TEST_CASE("recursive doubling of 4,096 ranks and of 4,095", "[collectives][scale]") {
  CHECK(run_at_scale("recursive_doubling", 4096, 16) == "");
  CHECK(run_at_scale("recursive_doubling", 4095, 16) == "");
}

}  // namespace pith::test
