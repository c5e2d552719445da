#include "model/cheapest.hpp"

#include "model/rules.hpp"

namespace pith {

namespace {

constexpr std::size_t kib = 1024;

// What waits at a port where several ranks send to: bytes of a block, and how many blocks.
struct Meeting {
  std::size_t block = 0;
  std::size_t blocks = 0;
};

Meeting meeting_at_port(const Algorithm& algorithm, const Shape& shape) {
  const auto ranks = static_cast<std::size_t>(shape.ranks);
  const bool is_allreduce = algorithm.collective == Collective::allreduce;
  const bool has_blocks = algorithm.collective == Collective::reduce_scatter ||
                          algorithm.collective == Collective::allgather ||
                          algorithm.collective == Collective::alltoall;
  const std::size_t block = shape.bytes / (has_blocks ? 1 : ranks);
  if (algorithm.pattern == SendPattern::partners) return {block, ranks};
  // An allreduce's results meet what is still to be reduced.
  return {block, (ranks - 1) * (is_allreduce ? 2 : 1)};
}

// 4 hosts, 1 to 16 MiB, links of 0.1 and 1 Gbit/s: everyone 1.06 to 1.44 times as long. 4 and 8
// hosts, 1 to 4 MiB: partners 1.0 to 1.9 times, since one may be a round ahead of the other.
double overflow_factor(const Algorithm& algorithm, const Meeting& all) {
  const bool is_long = algorithm.pattern == SendPattern::everyone
                           ? all.block >= 64 * kib
                           : all.block * all.blocks >= 1024 * kib;
  return is_long ? 1.2 : 1;
}

// The more ranks send to a port, the fewer packets of each follow a lost one, and then TCP waits
// 200 ms to send it again: on a port with a queue of 1 MiB nearly always where the ranks of 8 hosts
// meet with twice that, now and then with half of it; not those of 4 [V. Vasudevan et al., Safe and
// Effective Fine-grained TCP Retransmissions for Datacenter Communication, SIGCOMM 2009].
double timeout_seconds(const Algorithm& algorithm, const Shape& shape, const Meeting& all) {
  constexpr double every_fourth = 0.2 / 4;
  const bool are_many = algorithm.pattern == SendPattern::everyone && shape.ranks > 4;
  return are_many && all.block * all.blocks >= 512 * kib ? every_fourth : 0;
}

}  // namespace

double cost_on(const LinkCost& link, const Algorithm& algorithm, const Shape& shape) {
  if (!shape.multi_host || algorithm.pattern == SendPattern::neighbours) {
    return algorithm.cost(shape, link);
  }
  LinkCost shared = link;
  shared.beta *= shape.ranks_a_host;
  if (shape.ranks == 2 || algorithm.needs_hosts) return algorithm.cost(shape, shared);
  const Meeting all = meeting_at_port(algorithm, shape);
  shared.beta *= overflow_factor(algorithm, all);
  return algorithm.cost(shape, shared) + timeout_seconds(algorithm, shape, all);
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
