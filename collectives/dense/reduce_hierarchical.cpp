// Hierarchical reduce: each host sends one sum, once.
//
// The tree of reduce_tree.cpp, but one that knows of hosts (host_tree.hpp): the ranks of a host add
// up to one of them, which adds the sums of the hosts behind it and sends that on. Hosts form a
// chain for long vectors, a binary tree for short ones.
//
// Cost with H hosts and chunks of c bytes: in a chain (H-1)(alpha + beta c + 3 gamma c), and then
// beta a byte, where the tree of ranks takes 2 beta and more. Wins where hosts with several ranks
// meet over a network; where each has one rank, or all are on one, it is that tree.
#include "collectives/dense/host_tree.hpp"

namespace pith {

Task<Error> reduce_tree(Call& call, CollectiveArgs args);
double reduce_tree_cost(const Shape& shape, const LinkCost& link);

Task<Error> reduce_hierarchical(Call& call, CollectiveArgs args) {
  const Hosts* const hosts = call.context().hosts;
  if (!hosts || !hosts->share_ranks()) {
    co_return co_await reduce_tree(call, args);
  }
  const HostWay way = way_between(hosts->count(), args.count * size_of(args.type), args.tuning);
  args.tuning.chunk_bytes = way.chunk_bytes;
  const Branch node = host_branch(*hosts, call.rank(), args.root, way.chain);
  co_return co_await reduce_along(call, args, node);
}

// The link given is that between hosts.
double reduce_hierarchical_cost(const Shape& shape, const LinkCost& link) {
  if (shape.ranks_a_host <= 1) return reduce_tree_cost(shape, link);
  if (shape.bytes == 0) return 0;  // no chunk, no message
  const HostWay way = way_between(shape.hosts, shape.bytes, shape.tuning);
  const auto n = static_cast<double>(shape.bytes);
  const double chunk = std::min(n, static_cast<double>(way.chunk_bytes));
  const double others = std::min(2, shape.ranks_a_host - 1);
  const double added = others + (way.chain ? 1 : std::min(2, shape.hosts - 1));
  const double work = added * link.gamma;
  const double between = time_between(way, shape.hosts, shape.bytes, link);
  const double hops = hops_between(way, shape.hosts);
  return link.message + std::max(between, work * n) + (hops + 1) * work * chunk;
}

}  // namespace pith
