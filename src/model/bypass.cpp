#include "model/bypass.hpp"

#include <cmath>

#include "collectives/sparse/ar_topk_cost.hpp"
#include "collectives/sparse/by_host_cost.hpp"
#include "collectives/sparse/exdyna_cost.hpp"
#include "collectives/sparse/whole/gtopk_cost.hpp"
#include "collectives/typed_span.hpp"
#include "compress/scheme.hpp"
#include "model/compressed_cost.hpp"
#include "model/nominal.hpp"

namespace pith {

bool is_faster_dense(const Spec& spec, std::size_t count, int ranks, const LinkCost& link) {
  if (ranks == 1 || count == 0) return false;
  const CallCost sparse = compressed_cost(spec, spec.density, count, ranks);
  return dense_cost(count, ranks).seconds(link.alpha, link.beta) <
         sparse.seconds(link.alpha, link.beta);
}

double compressed_seconds_by_host(const Spec& spec, std::size_t count, const Hosts& hosts,
                                  const LinkCost& wire) {
  constexpr double bits = 8 * nominal::pair_bytes;
  const auto slices = static_cast<std::size_t>(hosts.slices());
  const std::size_t slice = chunks_in(count, slices);
  const double k = static_cast<double>(elected_of(spec.density, slice));
  const bool all_lists = gathers_lists(spec);
  const SparseShape pairs{hosts.count(), k, bits / 2, bits / 2, 1};
  const auto seconds = [&] {
    if (all_lists) return topk_allgather_cost(pairs, wire.alpha, wire.beta);
    if (spec.scheme->electors == Electors::each_then_pairs) {
      return gtopk_cost({.ranks = hosts.count(), .count = slice, .density = spec.density}, wire);
    }
    return exdyna_cost({hosts.count(), slice, spec.density}, wire);
  };
  const double exchange = seconds();
  const double found = k * (all_lists ? hosts.count() : 1) * static_cast<double>(slices);
  // A host's network links carry the traffic of all its slices.
  const ByHostShape shape{hosts.most_ranks(), hosts.slices(), count, found,
                          exchange * static_cast<double>(slices)};
  return by_host_cost(shape, nominal::memory, true);
}

double dense_seconds_by_host(std::size_t count, const Hosts& hosts, const LinkCost& wire) {
  const double others = 1 - 1 / static_cast<double>(hosts.count());
  return 2 * wire.alpha + 2 * others * 4 * static_cast<double>(count) * wire.beta +
         2 * 4 * static_cast<double>(count) * nominal::memory.beta;
}

bool is_faster_dense_by_host(const Spec& spec, std::size_t count, const Hosts& hosts,
                             const LinkCost& wire) {
  return count > 0 && dense_seconds_by_host(count, hosts, wire) <
                          compressed_seconds_by_host(spec, count, hosts, wire);
}

}  // namespace pith
