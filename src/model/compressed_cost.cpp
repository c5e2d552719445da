#include "model/compressed_cost.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "collectives/sparse/coded_cost.hpp"
#include "collectives/varying/varying_cost.hpp"
#include "compress/gossip/choco_scheme.hpp"
#include "compress/low_rank/elected_rows.hpp"
#include "compress/low_rank/given_matrices.hpp"
#include "compress/scheme.hpp"
#include "model/nominal.hpp"

namespace pith {

namespace {

// Each pass over the vector costs memory bandwidth.
double passes(std::size_t count) {
  return double(count) * (nominal::select_element + nominal::write_element);
}

// The lists that go through a rank's link as wholes, one after another; none: they go in shares.
std::optional<double> whole_lists(const Spec& spec, int ranks) {
  if (spec.scheme->averages_parameters) return forecast_degree(spec, ranks);
  if (gathers_lists(spec)) return ranks - 1;
  const bool by_tree = spec.scheme->electors == Electors::each_then_pairs;
  if (by_tree) return 2 * std::ceil(std::log2(double(ranks)));
  return {};
}

}  // namespace

// Each rank adds up all the pairs it receives. Where nobody elects all values go in their type.
CallCost compressed_cost(const Spec& spec, double density, std::size_t count, int ranks) {
  const double others = ranks - 1;
  if (const auto coding = coding_of(spec)) {
    constexpr std::size_t strands = CodedShape::strands;
    const double rounds = double(chunks_in(chunks_in(count, CodedShape::parcel(count)), strands));
    return {2 * std::max(others, rounds), 2 * others / ranks * double(coding->bytes(count)),
            passes(count) + double(count) * nominal::code_element};
  }
  if (spec.scheme->varying) {
    const double bytes = usual_bytes(spec.scheme->varying(spec)) * double(count);
    return {2 * others, 2 * others / ranks * bytes,
            passes(count) + double(count) * nominal::code_element};
  }
  if (draws_factors(spec)) {
    const LowRankCounts counts = unstated_counts(spec, count);
    const double side = std::min(std::sqrt(double(count)), double(most_side(spec)));
    const double rows = counts.factors > 0 ? side : 0;  // that are decomposed
    return {2 * std::ceil(std::log2(double(ranks))) + 2 * others,
            others * sizeof(float) *
                (2 / double(ranks) * double(counts.elements) + double(counts.factors)),
            3 * passes(count) + rows * double(count) * nominal::decompose_element};
  }
  if (rank_of(spec) > 0) {
    const double bytes = sizeof(float) * double(unstated_counts(spec, count).all());
    return {4 * std::ceil(std::log2(double(ranks))), 2 * others / ranks * bytes, 3 * passes(count)};
  }
  if (!spec.sparse()) return dense_cost(count, ranks);
  if (const std::size_t sketch = sketch_of(spec)) {
    const RowCounts rows = square_row_counts(count, sketch, density);
    const double bytes = double(sizeof(float) * rows.sketch + size_of(spec.values) * rows.elements);
    const double sums = double(rows.sketch + rows.elements) * nominal::add_pair;
    const double messages = (rows.sketch > 0 ? 4 : 2) * others;
    return {messages, 2 * others / ranks * bytes,
            3 * sums + passes(count) + double(count) * nominal::select_element};
  }
  const double k = double(elected_of(density, count));
  const std::optional<double> whole = whole_lists(spec, ranks);
  const double lists = whole.value_or(2);
  const bool indices = spec.scheme->electors != Electors::all_alike;
  const double pair_bytes = indices ? nominal::pair_bytes : double(size_of(spec.values));
  return {2 * whole.value_or(others), lists * k * pair_bytes,
          (lists + 1) * k * nominal::add_pair + passes(count)};
}

CallCost dense_cost(std::size_t count, int ranks) {
  const double others = ranks - 1;
  return {2 * std::ceil(std::log2(double(ranks))), 2 * others / ranks * 4 * double(count),
          passes(count)};
}

}  // namespace pith
