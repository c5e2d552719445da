#include "model/cheapest.hpp"

#include "model/rules.hpp"

namespace pith {

double cost_on(const LinkCost& link, const Algorithm& algorithm, const Shape& shape) {
  // 4 hosts, 1 to 16 MiB, links of 0.1 and 1 Gbit/s: 1.06 to 1.44 times as long. What sends whole
  // vectors to one partner at a time loses packets there, too, and its times vary more.
  constexpr double overflow = 1.2;
  constexpr std::size_t overflowing_bytes = std::size_t{64} << 10;
  LinkCost shared = link;
  if (shape.multi_host && algorithm.pattern != SendPattern::neighbours) {
    shared.beta *= shape.ranks_a_host;
  }
  const bool is_cut = algorithm.collective == Collective::allreduce;
  const std::size_t block = shape.bytes / static_cast<std::size_t>(is_cut ? shape.ranks : 1);
  const bool converge = algorithm.pattern == SendPattern::everyone && shape.ranks > 2;
  if (shape.multi_host && converge && block >= overflowing_bytes) shared.beta *= overflow;
  return algorithm.cost(shape, shared);
}

const Algorithm& cheapest_algorithm(const Shape& shape, Collective collective,
                                    const LinkCost& link) {
  constexpr double nearly = 0.98;
  if (shape.views) return default_algorithm(shape, collective);
  const Algorithm* best = &default_algorithm(shape, collective);
  double least = nearly * cost_on(link, *best, shape);
  for (const Algorithm& one : algorithms()) {
    if (one.collective != collective || !serves(one, shape)) continue;
    const double cost = cost_on(link, one, shape);
    if (cost >= least) continue;
    best = &one;
    least = cost;
  }
  return *best;
}

}  // namespace pith
