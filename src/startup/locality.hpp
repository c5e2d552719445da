// Where ranks run, and the order of ranks that follows: host by host, then package, NUMA node,
// shared cache and core, so that a ring crosses each boundary as rarely as possible. Between
// processes a level counts only if it is certain: a rank that may move between two packages has
// none.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/rank_order.hpp"
#include "settings/settings.hpp"

namespace pith {

struct Locality {
  static constexpr int unknown = -1;

  std::string host;  // equal for ranks under one kernel; empty: not known
  // Each level is named by the lowest CPU of the object that holds all CPUs the rank may run on.
  int package = unknown;
  int numa_node = unknown;
  int cache = unknown;  // of level 3
  int core = unknown;

  std::string pack() const;
  // Missing fields are unknown.
  static Locality unpack(std::string_view packed);
};

// Of the running kernel; the same in all containers and network namespaces of a host. Empty where
// it cannot be read.
std::string boot_id();

// Disjoint sets of ranks; each rank is alone at first.
class RankGroups {
 public:
  explicit RankGroups(std::size_t ranks);
  void join(std::size_t a, std::size_t b);
  // The lowest rank of the group, which names it.
  std::size_t group_of(std::size_t rank) const;

 private:
  std::vector<std::size_t> parents_;  // parents_[rank] <= rank
};

// Whether to order this many ranks by where they run; with two the order makes no difference.
inline bool orders_by_locality(const Settings& settings, std::size_t ranks) {
  return settings.order == "topology" && !settings.deterministic && ranks > 2;
}

// The same on all ranks for the same input. `groups`: ranks that reach each other without leaving
// their container or host; under one kernel ranks are ordered by group first.
RankOrder order_by_locality(std::span<const Locality> ranks, const RankGroups& groups);

}  // namespace pith
