// Hierarchical barrier: between hosts only one rank of each tells others who has arrived.
//
//   inside a host    ranks tell up a binary tree that they and those below have arrived
//   between hosts    the first ranks of hosts tell each other, by a dissemination barrier
//   inside a host    the news that all have arrived goes down the tree
//
// Cost with H hosts: ceil(log2 H) alpha, and two messages inside the hosts. A dissemination barrier
// of all P ranks takes ceil(log2 P) alpha: in each of its rounds some ranks await a message from
// another host. Wins where hosts with several ranks meet over a network; where each has one rank,
// or all are on one, it is that barrier.
#include "collectives/hosts.hpp"
#include "collectives/sub_call.hpp"
#include "collectives/typed_span.hpp"

namespace pith {

Task<Error> barrier_dissemination(Call& call, CollectiveArgs args);
double barrier_dissemination_cost(const Shape& shape, const LinkCost& link);

namespace {

constexpr std::uint16_t in_host_lane = 1;  // lane 0 is between hosts
constexpr std::uint32_t up = 0;
constexpr std::uint32_t down = 1;

}  // namespace

Task<Error> barrier_hierarchical(Call& call, CollectiveArgs args) {
  const Hosts* const hosts = call.context().hosts;
  if (!hosts || !hosts->share_ranks()) {
    co_return co_await barrier_dissemination(call, args);
  }
  const std::span<const int> ranks = hosts->ranks_of(hosts->host_of(call.rank()));
  const auto at = [&](int index) { return ranks[static_cast<std::size_t>(index)]; };
  const TreeNode node =
      pre_order_tree(hosts->index_of(call.rank()), static_cast<int>(ranks.size()));
  for (const int child : node.children) {
    if (child < 0) continue;
    Error error = co_await call.recv(at(child), in_host_lane, up, {});
    if (error) co_return error;
  }
  if (node.parent < 0) {
    SubCall between(call, hosts->count(), false, [&](int host) { return hosts->owner(host, 0); });
    Error error = co_await barrier_dissemination(between.call(), args);
    if (error) co_return error;
  } else {
    Error error = co_await call.send(at(node.parent), in_host_lane, up, {});
    if (error) co_return error;
    error = co_await call.recv(at(node.parent), in_host_lane, down, {});
    if (error) co_return error;
  }
  for (const int child : node.children) {
    if (child < 0) continue;
    Error error = co_await call.send(at(child), in_host_lane, down, {});
    if (error) co_return error;
  }
  co_return Error();
}

// The link given is that between hosts.
double barrier_hierarchical_cost(const Shape& shape, const LinkCost& link) {
  if (shape.hosts <= 1 || shape.ranks_a_host <= 1) return barrier_dissemination_cost(shape, link);
  Shape between = shape;
  between.ranks = shape.hosts;
  return barrier_dissemination_cost(between, link) + 2 * link.message;
}

}  // namespace pith
