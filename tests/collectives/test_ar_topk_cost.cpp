// The cost functions of AR-Topk against the paper's tables.
#include "collectives/ar_topk_cost.hpp"
#include "tests/catch.hpp"

namespace pith::test {

namespace {

using Cost = double (*)(const SparseShape& shape, double alpha, double beta);

constexpr double gigabits = 1.25e8;

SparseShape shape_of(int ranks, double megabytes, double density) {
  SparseShape shape;
  shape.ranks = ranks;
  shape.pairs = megabytes * 1e6 / 4 * density;
  return shape;
}

// Where the second one costs as much as the first: alpha / beta in units of the bytes of k values.
void check_switch(Cost first, Cost second, int ranks, double k) {
  const SparseShape shape = shape_of(ranks, 4, 1);
  const double beta = 1e-9;
  const double alpha = k * shape.value_bytes() * beta;
  INFO(ranks << " ranks");
  // The table has three digits.
  CHECK(first(shape, alpha * 0.98, beta) < second(shape, alpha * 0.98, beta));
  CHECK(first(shape, alpha * 1.02, beta) > second(shape, alpha * 1.02, beta));
}

}  // namespace

TEST_CASE("costs of AR-Topk switch where the paper's Eq. 5 says", "[ar-topk][cost]") {
  const int ranks[] = {4, 8, 16, 32, 64, 128, 256};
  const double ring_over_tree[] = {1.25, .531, .278, .155, .088, .050, .028};
  const double ring_over_allgather[] = {.417, .661, .804, .888, .937, .965, .980};
  for (std::size_t i = 0; i < std::size(ranks); ++i) {
    check_switch(ar_topk_ring_cost, ar_topk_tree_cost, ranks[i], ring_over_tree[i]);
    check_switch(ar_topk_ring_cost, topk_allgather_cost, ranks[i], ring_over_allgather[i]);
  }
  const double tree_over_allgather[] = {.833, 2.25, 4.70, 9.00, 16.6, 30.4};
  for (std::size_t i = 0; i < std::size(tree_over_allgather); ++i) {
    check_switch(ar_topk_tree_cost, topk_allgather_cost, ranks[i + 1], tree_over_allgather[i]);
  }
}

TEST_CASE("costs of AR-Topk for ResNet18 on 8 ranks", "[ar-topk][cost]") {
  const SparseShape shape = shape_of(8, 46.758, 0.1);
  const double beta = 1 / (10 * gigabits);
  CHECK(std::fabs(topk_allgather_cost(shape, 1e-3, beta) - 55.4e-3) < 0.1e-3);
  CHECK(std::fabs(ar_topk_ring_cost(shape, 1e-3, beta) - 34.8e-3) < 0.1e-3);
  CHECK(std::fabs(ar_topk_tree_cost(shape, 1e-3, beta) - 42.7e-3) < 0.1e-3);
}

// Table VI, whose fastest cells are: a(llgather), r(ing), t(ree).
TEST_CASE("the cheapest way is the one that the paper has measured", "[ar-topk][cost]") {
  const double megabytes[] = {46.758, 100, 240, 532};
  const double densities[] = {0.1, 0.01, 0.001};
  const double speeds[] = {10, 5, 1};
  const std::string fastest[] = {"rrr aar aaa", "rrr atr aaa", "rrr rrr aar", "rrr rrr aar"};
  for (std::size_t model = 0; model < 4; ++model) {
    std::string cheapest;
    for (const double density : densities) {
      if (!cheapest.empty()) cheapest += ' ';
      for (const double speed : speeds) {
        const SparseShape shape = shape_of(8, megabytes[model], density);
        const double beta = 1 / (speed * gigabits);
        const double gather = topk_allgather_cost(shape, 1e-3, beta);
        const double ring = ar_topk_ring_cost(shape, 1e-3, beta);
        const double tree = ar_topk_tree_cost(shape, 1e-3, beta);
        cheapest += gather < std::min(ring, tree) ? 'a' : (ring < tree ? 'r' : 't');
      }
    }
    CHECK(cheapest == fastest[model]);
  }
}

TEST_CASE("indices along a chain cost the same bytes for any number of ranks", "[ar-topk][cost]") {
  const double beta = 1e-9;
  SparseShape shape = shape_of(8, 400, 0.01);
  shape.parcels = 64;
  const double few = ar_topk_cost(shape, 0, beta);
  CHECK(few < ar_topk_ring_cost(shape, 0, beta));
  shape.ranks = 16;
  CHECK(ar_topk_cost(shape, 0, beta) < 1.2 * few);
  CHECK(ar_topk_ring_cost(shape, 0, beta) > ar_topk_cost(shape, 0, beta));
}

}  // namespace pith::test
