// An algorithm that the library does not have, added as the guide says: it is found by its name,
// chosen by the rule that has a line for it, and does what every algorithm must. The latter are the
// tests of tests/collectives with the tag [conformance], linked with the extended table.
#include "model/model.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/algorithm_conformance.hpp"
#include "tests/collectives/dense_program.hpp"

namespace pith::test {

namespace {

const Algorithm* naive_tree() { return find_algorithm(Collective::allreduce, "naive_tree"); }

}  // namespace

std::span<const Algorithm> tested_algorithms() { return {naive_tree(), 1}; }

TEST_CASE("the table has the algorithm, and messages name it", "[extension]") {
  REQUIRE(naive_tree() != nullptr);
  const Expected<ForcedAlgorithms> unknown = read_forced_algorithms("naive_three", 4);
  REQUIRE_FALSE(unknown);
  const std::string refusal = unknown.error().message();
  CHECK(refusal.find("allreduce:naive_tree") != std::string::npos);
}

TEST_CASE("PITH_ALGO forces the algorithm", "[extension]") {
  for (const char* text : {"naive_tree", "allreduce:naive_tree", "ring,allreduce:naive_tree"}) {
    INFO(text);
    Model model(4);
    CHECK(&model.algorithm(Collective::allreduce, 8) != naive_tree());
    REQUIRE(!model.force(text));
    CHECK(&model.algorithm(Collective::allreduce, 8) == naive_tree());
    CHECK(model.algorithm(Collective::broadcast, 8).name == "binomial");
  }
}

TEST_CASE("the rule chooses the algorithm where its line says so, and where it costs too much, not",
          "[extension]") {
  for (const int ranks : {3, 4}) {
    Model model(ranks);
    CHECK(&model.algorithm(Collective::allreduce, 1 << 20) != naive_tree());
    model.set_views(true);
    CHECK((&model.algorithm(Collective::allreduce, 1 << 20) == naive_tree()) == (ranks == 3));
  }
}

TEST_CASE("the algorithm among one rank, and among many", "[extension]") {
  for (const int ranks : {1, 1000}) {
    for (const bool in_place : {false, true}) {
      DenseCase c;
      c.algorithm = naive_tree();
      c.ranks = ranks;
      c.count = 100;
      c.op = ranks == 1 ? Op::avg : Op::sum;
      c.in_place = in_place;
      CHECK(run_case(c, {}, "[extension]") == "");
    }
  }
}

}  // namespace pith::test
