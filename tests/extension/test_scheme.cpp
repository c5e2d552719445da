// A scheme that the library does not have, added as the guide says: it is known by its name, and
// does what every scheme must.
#include <algorithm>

#include "tests/catch.hpp"
#include "tests/collectives/common_reference.hpp"

namespace pith::test {

namespace {

const SchemeTest in_turn = {
    "in-turn", {"", "seed=7", "values=bf16", "values=f16"}, common_reference, nullptr};

SparseCase case_of(const std::string& variant, int ranks, std::vector<std::size_t> counts) {
  SparseCase c;
  c.spec = spec_of(in_turn, variant, 0.05);
  c.ranks = ranks;
  c.counts = std::move(counts);
  return c;
}

}  // namespace

TEST_CASE("the table has the scheme, and messages name it") {
  const auto all = schemes();
  CHECK(all.back()->name == "in-turn");
  CHECK(Spec::parse("in-turn:seed=3")->text().starts_with("in-turn:density=0.01,"));
  const std::string refusal = Spec::parse("topj").error().message();
  CHECK(refusal.find("choco, in-turn") != std::string::npos);
  const Spec spec = *Spec::parse("in-turn:seed=3,values=f16");
  CHECK(Spec::unpack(spec.pack()) == spec);
}

TEST_CASE("the scheme sums what has its turn, beside its reference") {
  for (const std::string& variant : in_turn.variants) {
    for (const int ranks : {1, 2, 3, 8}) {
      for (const std::vector<std::size_t>& counts :
           std::vector<std::vector<std::size_t>>{{1}, {100}, {70000}, {10, 0, 3000, 1}, {0}}) {
        SparseCase c = case_of(variant, ranks, counts);
        c.average = ranks == 3;
        CHECK(check_beside_reference(in_turn, c, {.steps = 6}) == "");
      }
    }
  }
}

TEST_CASE("the scheme keeps what every scheme must") {
  for (const std::string& variant : in_turn.variants) {
    CHECK(check_conserved(case_of(variant, 4, {10, 0, 3000, 1}), 6) == "");
    CHECK(check_nonfinite(case_of(variant, 3, {300, 40}), 1, 170) == "");
    CHECK(check_saved(case_of(variant, 3, {2000, 0, 70})) == "");
    CHECK(check_interrupted(case_of(variant, 3, {60, 0, 20}), 2, 1) == "");
  }
}

TEST_CASE("every element has its turn") {
  SparseProgram program(case_of("", 1, {1000}));
  World world(world_of(program.sparse_case()));
  std::vector<int> times(1000);
  for (std::uint64_t step = 0; step < 400; ++step) {
    program.draw(step);
    REQUIRE(program.step(world) == "");
    PairList& taken = program.compressor(0).taken();
    for (std::size_t i = 0; i < taken.count(); ++i) ++times[*taken.indices(i)];
  }
  CHECK(*std::min_element(times.begin(), times.end()) == 20);
  CHECK(*std::max_element(times.begin(), times.end()) == 20);
}

}  // namespace pith::test
