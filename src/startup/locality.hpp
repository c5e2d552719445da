// Where ranks run, and the order that follows from it: host by host, on a host package by package,
// NUMA node, shared cache and core, so that a ring crosses each of these borders as rarely as it
// can. Between processes only what is certain counts: a rank that may move between two packages
// has none.
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

  std::string host;  // equal where ranks run under one kernel; empty: not known
  // The lowest CPU of the one that holds all CPUs on which the rank may run.
  int package = unknown;
  int numa_node = unknown;
  int cache = unknown;  // of level 3
  int core = unknown;

  std::string pack() const;
  // What is missing in the text is unknown.
  static Locality unpack(std::string_view packed);
};

// Of the running kernel: containers and network namespaces of one host have the same. Empty where
// the system does not tell.
std::string boot_id();

// Ranks 0, 1, ... in groups, each alone at first.
class RankGroups {
 public:
  explicit RankGroups(std::size_t ranks);
  void join(std::size_t a, std::size_t b);
  // The lowest rank of the group.
  std::size_t group_of(std::size_t rank) const;

 private:
  std::vector<std::size_t> parents_;  // never higher than the rank
};

// Whether the order of so many ranks is to follow where they run; two are neighbours either way.
inline bool orders_by_locality(const Settings& settings, std::size_t ranks) {
  return settings.order == "topology" && !settings.deterministic && ranks > 2;
}

// The same on all ranks that give the same. `groups`: ranks that reach each other without leaving
// their container or host, which is what counts first among those under one kernel.
RankOrder order_by_locality(std::span<const Locality> ranks, const RankGroups& groups);

}  // namespace pith
