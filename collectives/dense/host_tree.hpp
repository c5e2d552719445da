// A tree in which a vector crosses to, or from, each host once: one rank of every host stands for
// it, the root for its own; these form a chain or a tree, and the others of a host hang below.
//
//   hosts a b c, root a0:   a0 --- b0 --- c0      chain: each port carries the vector once each way
//                           /|     /|     /|      tree:  fewer hosts one after another, but some
//                         a1 a2  b1 b2  c1 c2            send or get the vector twice
#pragma once

#include <algorithm>
#include <array>
#include <span>

#include "collectives/dense/chain.hpp"
#include "collectives/hosts.hpp"
#include "collectives/patterns.hpp"

namespace pith {

// A rank's place in a tree of up to four children; no parent: -1.
class Branch {
 public:
  Branch() = default;
  explicit Branch(const TreeNode& node) : parent_(node.parent) {
    for (const int child : node.children) add(child);
  }
  static constexpr std::size_t most = 4;

  void set_parent(int rank) { parent_ = rank; }
  void add(int child) {
    if (child >= 0) children_[count_++] = child;
  }
  int parent() const { return parent_; }
  std::span<const int> children() const { return std::span(children_).first(count_); }

 private:
  int parent_ = -1;
  std::array<int, most> children_{};
  std::size_t count_ = 0;
};

// Reduces to the tree's root as reduce_tree.cpp says.
Task<Error> reduce_along(Call& call, CollectiveArgs args, Branch node);

// Whether hosts form a chain, and in what chunks the vector goes.
struct HostWay {
  bool chain = false;
  std::size_t chunk_bytes = 0;
};

constexpr TreeNode chain_node(int rank, int ranks) {
  return {rank - 1, {rank + 1 < ranks ? rank + 1 : -1, -1}};
}

// How many hosts the vector passes on its longest way from the root.
inline int hops_between(const HostWay& way, int hosts) {
  return way.chain ? hosts - 1 : ceil_log2(hosts + 1) - 1;
}

// Seconds from when the root has the vector until the last host has it all, or the other way.
inline double time_between(const HostWay& way, int hosts, std::size_t bytes, const LinkCost& link) {
  const auto all = static_cast<double>(bytes);
  const double chunk = std::min(all, static_cast<double>(way.chunk_bytes));
  const double byte = (way.chain ? 1 : std::min(2, hosts - 1)) * link.beta;
  return hops_between(way, hosts) * (link.alpha + byte * chunk) + byte * (all - chunk);
}

inline HostWay way_between(int hosts, std::size_t bytes, const Tuning& tuning) {
  const LinkCost link{tuning.start_bytes, 1, 0, 0};  // all ranks decide alike
  const HostWay chain{true, chain_chunk_bytes(bytes, hosts + 1, tuning)};
  const HostWay tree{false, tuning.chunk_bytes};
  const bool pays =
      time_between(chain, hosts, bytes, link) < time_between(tree, hosts, bytes, link);
  return pays ? chain : tree;
}

// Of hosts that are numbered from the root's on.
inline Branch host_branch(const Hosts& hosts, int rank, int root, bool chain) {
  const int own = hosts.host_of(rank);
  const int first = hosts.host_of(root);
  const std::span<const int> ranks = hosts.ranks_of(own);
  const auto ranks_here = static_cast<int>(ranks.size());
  const auto head = [&](int host) { return host == first ? root : hosts.owner(host, 0); };
  const TreeNode inside =
      pre_order_tree(hosts.index_of(rank), hosts.index_of(head(own)), ranks_here);
  Branch branch;
  if (rank == head(own)) {
    const int turned = wrap(own - first, hosts.count());
    const TreeNode between =
        chain ? chain_node(turned, hosts.count()) : pre_order_tree(turned, hosts.count());
    const auto head_after = [&](int distance) {
      return head(wrap(first + distance, hosts.count()));
    };
    if (between.parent >= 0) branch.set_parent(head_after(between.parent));
    for (const int child : between.children) {
      if (child >= 0) branch.add(head_after(child));
    }
  } else {
    branch.set_parent(ranks[static_cast<std::size_t>(inside.parent)]);
  }
  for (const int child : inside.children) {
    if (child >= 0) branch.add(ranks[static_cast<std::size_t>(child)]);
  }
  return branch;
}

}  // namespace pith
