// The paper's cost terms against what the paper printed.
#include "collectives/sparse/paper_costs.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "tests/catch.hpp"

namespace pith::test {

namespace {

enum Form : std::size_t { allgather, ring, tree, forms };

using Costs = std::array<double, forms>;

Costs costs(const SparseShape& shape, double alpha, double beta) {
  return {topk_allgather_cost(shape, alpha, beta), paper_art_ring_cost(shape, alpha, beta),
          paper_art_tree_cost(shape, alpha, beta)};
}

std::size_t cheapest(const Costs& of) {
  return static_cast<std::size_t>(std::min_element(of.begin(), of.end()) - of.begin());
}

constexpr double gigabit = 1.25e8;  // bytes a second
constexpr std::array bandwidths{10 * gigabit, 5 * gigabit, gigabit};
constexpr std::array densities{0.1, 0.01, 0.001};

// Table VI: milliseconds with 8 ranks and 1 ms a message, by density, bandwidth and form.
struct Model {
  const char* name;
  double bytes;
  double printed[densities.size()][bandwidths.size()][forms];
};
constexpr Model models[] = {
    {"ResNet18",
     46.758e6,
     {{{54, 35, 43.2}, {107.76, 52.5, 76.3}, {526.3, 194.7, 345.6}},
      {{7.66, 18.1, 12.2}, {13.83, 20.8, 16.1}, {51.93, 34.1, 41.9}},
      {{3.28, 16.7, 9}, {4.25, 17.9, 10.1}, {8.86, 19.5, 12.8}}}},
    {"ResNet50",
     102.228e6,
     {{{115.1, 52.9, 83.4}, {232, 94.7, 156.2}, {1148, 405.5, 745}},
      {{14.35, 20.3, 15.9}, {28.1, 26.1, 24.2}, {126.5, 58.8, 83.7}},
      {{4.65, 18.1, 10}, {5.3, 17.8, 10.5}, {14.35, 21, 16.1}}}},
    {"AlexNet",
     244.403e6,
     {{{271.8, 106.8, 180.4}, {544.5, 200.4, 354.8}, {2718.7, 964.4, 1778}},
      {{32.73, 25.2, 25.8}, {61.75, 34.8, 42.6}, {282.7, 111.8, 186.8}},
      {{6, 18.6, 11.1}, {8.92, 19.3, 13.1}, {31.33, 27, 27.3}}}},
    {"ViT",
     532e6,
     {{{592.77, 238.6, 401.2}, {1206, 424.3, 779.1}, {5973, 2047, 3852}},
      {{68.48, 36.2, 46.2}, {127.45, 58, 86.2}, {601.8, 222.8, 385.2}},
      {{9.15, 19.2, 12.9}, {15.3, 21.4, 16.9}, {59.68, 36.7, 44.4}}}},
};

// From a message's share and a byte's share, each seen alone.
double messages(const SparseShape& shape, Form form) { return costs(shape, 1, 0)[form]; }
double bytes(const SparseShape& shape, Form form) { return costs(shape, 0, 1)[form]; }

// Eq. 5: `one` is cheaper than `other` where alpha / beta < K x, of x bytes of kept values.
double switch_point(const SparseShape& shape, Form one, Form other) {
  const double kept = shape.pairs * 4;
  return (bytes(shape, other) - bytes(shape, one)) / kept /
         (messages(shape, one) - messages(shape, other));
}

}  // namespace

TEST_CASE("the paper's terms choose what its Table VI shows, in all 36 cells", "[ar-topk][cost]") {
  int agreed = 0;
  for (const Model& model : models) {
    for (std::size_t d = 0; d < densities.size(); ++d) {
      for (std::size_t b = 0; b < bandwidths.size(); ++b) {
        const SparseShape shape{.ranks = 8, .pairs = model.bytes / 4 * densities[d]};
        const Costs found = costs(shape, 1e-3, 1 / bandwidths[b]);
        Costs printed;
        std::copy_n(model.printed[d][b], forms, printed.begin());
        INFO(model.name << ", density " << densities[d] << ", bytes a second " << bandwidths[b]);
        CHECK(cheapest(found) == cheapest(printed));
        agreed += cheapest(found) == cheapest(printed) ? 1 : 0;
        for (std::size_t form = 0; form < forms; ++form) {
          CHECK(1e3 * found[form] == Approx(printed[form]).epsilon(0.11));
        }
      }
    }
  }
  CHECK(agreed == 36);
}

TEST_CASE("the paper's terms, by hand", "[ar-topk][cost]") {
  const SparseShape shape{.ranks = 8, .pairs = 46.758e6 / 4 * 0.1};
  const Costs found = costs(shape, 1e-3, 1 / (10 * gigabit));
  CHECK(1e3 * found[allgather] == Approx(55.4).margin(0.05));
  CHECK(1e3 * found[ring] == Approx(34.8).margin(0.05));
  CHECK(1e3 * found[tree] == Approx(42.7).margin(0.05));
}

TEST_CASE("the paper's points of switching", "[ar-topk][cost]") {
  struct Point {
    int ranks;
    double ring_over_tree;
    double ring_over_allgather;
    double tree_over_allgather;
  };
  constexpr Point points[] = {{4, 1.25, .417, 0},     {8, .531, .661, .833},
                              {16, .278, .804, 2.25}, {32, .155, .888, 4.70},
                              {64, .088, .937, 9.00}, {128, .050, .965, 16.6},
                              {256, .028, .980, 30.4}};
  for (const Point& point : points) {
    INFO(point.ranks << " ranks");
    const SparseShape shape{.ranks = point.ranks, .pairs = 1000};
    CHECK(switch_point(shape, ring, tree) == Approx(point.ring_over_tree).margin(6e-4));
    CHECK(switch_point(shape, ring, allgather) == Approx(point.ring_over_allgather).margin(6e-4));
    CHECK(switch_point(shape, tree, allgather) ==
          Approx(point.tree_over_allgather).epsilon(4e-3).margin(1e-9));
  }
  // Two ranks: the ring has no more messages than the tree, and neither beats the allgather.
  const SparseShape two{.ranks = 2, .pairs = 1000};
  CHECK(messages(two, ring) == messages(two, tree));
  for (const double alpha : {0.0, 1e-6, 1e-3}) CHECK(cheapest(costs(two, alpha, 1e-9)) == 0);
}

TEST_CASE("the paper's terms with fewer bits", "[ar-topk][cost]") {
  SparseShape shape{.ranks = 8, .pairs = 1000};
  const double kept = shape.pairs * 4;
  for (const auto& [ranks, of_allgather, of_ring, of_tree] :
       {std::tuple{8, 14.0, 4.75, 9.0}, {32, 62.0, 6.94, 15.0}, {128, 254.0, 8.98, 21.0}}) {
    shape.ranks = ranks;
    CHECK(bytes(shape, allgather) / kept == Approx(of_allgather));
    CHECK(bytes(shape, ring) / kept == Approx(of_ring).margin(6e-3));
    CHECK(bytes(shape, tree) / kept == Approx(of_tree));
  }
  // Cheap indices help the allgather most, which carries P-1 copies of them.
  shape.ranks = 8;
  shape.index_bits = 8;
  CHECK(switch_point(shape, ring, allgather) == Approx(.446).margin(6e-4));
  shape.value_bits = 16;
  CHECK(bytes(shape, allgather) / kept == Approx(7 * 24 / 32.0));
  CHECK(bytes(shape, ring) / kept == Approx((2 * 7 / 8.0 * 16 + 3 * 8) / 32));
  CHECK(bytes(shape, tree) / kept == Approx((2 * 3 * 16 + 3 * 8) / 32.0));
}

}  // namespace pith::test
