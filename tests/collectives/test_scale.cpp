// Many ranks: a ring of 1,024, recursive doubling of 4,096, trees of 1,000. The results must be
// right, at a cost in memory that leaves room.
#include "tests/catch.hpp"
#include "tests/collectives/dense_program.hpp"
#include "tests/sanitized.hpp"

namespace pith::test {

namespace {

constexpr int reduction = sanitized ? 8 : 1;

std::string run_at_scale(std::string_view name, int ranks, std::size_t count,
                         Collective collective = Collective::allreduce) {
  DenseCase c;
  c.algorithm = find_algorithm(collective, name);
  c.ranks = ranks / reduction;
  c.count = count;
  c.tuning = {};
  return run_case(c, {}, "[scale]");
}

}  // namespace

TEST_CASE("a ring of 1,024 ranks", "[collectives][scale][long]") {
  CHECK(run_at_scale("ring", 1024, 1024) == "");
}

TEST_CASE("recursive doubling of 4,096 ranks and of 4,095", "[collectives][scale]") {
  CHECK(run_at_scale("recursive_doubling", 4096, 16) == "");
  CHECK(run_at_scale("recursive_doubling", 4095, 16) == "");
}

TEST_CASE("trees and halving of 1,000 ranks and of 1,024", "[collectives][scale]") {
  CHECK(run_at_scale("double_tree", 1000, 100) == "");
  CHECK(run_at_scale("rabenseifner", 1024, 1024) == "");
  CHECK(run_at_scale("tree", 1000, 100, Collective::reduce) == "");
  CHECK(run_at_scale("recursive_halving", 1000, 1, Collective::reduce_scatter) == "");
  CHECK(run_at_scale("binomial", 1000, 4, Collective::gather) == "");
  CHECK(run_at_scale("binomial", 1000, 4, Collective::scatter) == "");
  CHECK(run_at_scale("recursive_doubling", 1000, 4, Collective::exscan) == "");
  CHECK(run_at_scale("chain", 1000, 40, Collective::scan) == "");
}

}  // namespace pith::test
