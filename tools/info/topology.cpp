#include "topology.hpp"

#include <fmt/format.h>
#include <hwloc.h>

#include <memory>
#include <vector>

#include "startup/topology.hpp"

namespace pith_info {

namespace {

struct Destroy {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, Destroy>;

// "0-3,8"
std::string list_of(hwloc_const_bitmap_t set) {
  char* text = nullptr;
  if (hwloc_bitmap_list_asprintf(&text, set) < 0) return "?";
  const std::unique_ptr<char, decltype(&std::free)> owned(text, std::free);
  return text;
}

int count(hwloc_topology_t topology, hwloc_obj_type_t type) {
  return hwloc_get_nbobjs_by_type(topology, type);
}

std::string size_text(std::uint64_t bytes) {
  constexpr std::uint64_t kib = 1024;
  if (bytes >= kib * kib * kib) return fmt::format("{} GiB", bytes / (kib * kib * kib));
  if (bytes >= kib * kib) return fmt::format("{} MiB", bytes / (kib * kib));
  return fmt::format("{} KiB", bytes / kib);
}

// Each as "CPUs 0-3 (24 GiB)".
std::string numa_nodes(hwloc_topology_t topology) {
  std::string text;
  for (int i = 0; i < count(topology, HWLOC_OBJ_NUMANODE); ++i) {
    const hwloc_obj_t node =
        hwloc_get_obj_by_type(topology, HWLOC_OBJ_NUMANODE, static_cast<unsigned>(i));
    text += fmt::format("{}CPUs {} ({})", i == 0 ? "" : ", ", list_of(node->cpuset),
                        size_text(node->attr->numanode.local_memory));
  }
  return text;
}

// The caches of one level that several cores share; empty if there are none.
std::string shared_caches(hwloc_topology_t topology, hwloc_obj_type_t type) {
  std::string text;
  for (int i = 0; i < count(topology, type); ++i) {
    const hwloc_obj_t cache = hwloc_get_obj_by_type(topology, type, static_cast<unsigned>(i));
    const int cores =
        hwloc_get_nbobjs_inside_cpuset_by_type(topology, cache->cpuset, HWLOC_OBJ_CORE);
    if (cores < 2) continue;
    text += fmt::format("{}{} by CPUs {}", text.empty() ? "" : ", ",
                        size_text(cache->attr->cache.size), list_of(cache->cpuset));
  }
  return text;
}

std::string allowed_cpus(hwloc_topology_t topology) {
  const hwloc_bitmap_t mine = hwloc_bitmap_alloc();
  std::string text = "unknown";
  if (mine && hwloc_get_cpubind(topology, mine, HWLOC_CPUBIND_PROCESS) == 0) {
    hwloc_bitmap_and(mine, mine, hwloc_topology_get_allowed_cpuset(topology));
    text = fmt::format("{} ({} in all)", list_of(mine), hwloc_bitmap_weight(mine));
  }
  hwloc_bitmap_free(mine);
  return text;
}

std::string level_text(const char* name, int lowest_cpu) {
  return lowest_cpu == pith::Locality::unknown ? fmt::format("{} not certain", name)
                                               : fmt::format("{} of CPU {}", name, lowest_cpu);
}

// As a rank started with this process's binding would report it.
std::string own_place() {
  const pith::Locality at = pith::own_locality();
  return fmt::format("host {}, {}, {}, {}, {}", at.host.empty() ? "not known" : at.host,
                     level_text("package", at.package), level_text("NUMA node", at.numa_node),
                     level_text("L3", at.cache), level_text("core", at.core));
}

// For one rank per core, distributed round-robin over packages as by launchers with --map-by
// socket.
std::string walking_order(hwloc_topology_t topology) {
  const pith::Topology machine;
  std::vector<pith::Locality> ranks;
  const int packages = count(topology, HWLOC_OBJ_PACKAGE);
  const int cores = count(topology, HWLOC_OBJ_CORE);
  for (int turn = 0; turn < cores; ++turn) {
    for (int p = 0; p < packages; ++p) {
      const hwloc_obj_t package =
          hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, static_cast<unsigned>(p));
      const hwloc_obj_t core = hwloc_get_obj_inside_cpuset_by_type(
          topology, package->cpuset, HWLOC_OBJ_CORE, static_cast<unsigned>(turn));
      if (core) ranks.push_back(machine.locate(std::vector{hwloc_bitmap_first(core->cpuset)}));
    }
  }
  if (ranks.size() < 2) return "of one rank a core: nothing to choose";
  pith::RankGroups host(ranks.size());
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) host.join(0, rank);
  const pith::RankOrder order = pith::order_by_locality(ranks, host);
  if (order.by_rank()) return "of one rank a core, dealt over the sockets: by rank";
  return fmt::format("of one rank a core, dealt over the sockets: {}",
                     fmt::join(order.ranks(), " "));
}

}  // namespace

std::string topology() {
  hwloc_topology_t made = nullptr;
  if (hwloc_topology_init(&made) != 0) return "topology: hwloc cannot be initialised\n";
  const Topology topology(made);
  if (hwloc_topology_load(made) != 0) return "topology: hwloc cannot read this machine\n";
  std::string text = fmt::format("sockets        {}, cores {}, hardware threads {}\n",
                                 count(made, HWLOC_OBJ_PACKAGE), count(made, HWLOC_OBJ_CORE),
                                 count(made, HWLOC_OBJ_PU));
  text += fmt::format("NUMA nodes     {}: {}\n", count(made, HWLOC_OBJ_NUMANODE), numa_nodes(made));
  bool any = false;
  const std::pair<const char*, hwloc_obj_type_t> levels[] = {
      {"L2", HWLOC_OBJ_L2CACHE}, {"L3", HWLOC_OBJ_L3CACHE}, {"L4", HWLOC_OBJ_L4CACHE}};
  for (const auto& [name, type] : levels) {
    const std::string caches = shared_caches(made, type);
    if (!caches.empty()) text += fmt::format("shared {}      {}\n", name, caches);
    any |= !caches.empty();
  }
  if (!any) text += "shared caches  none, or not known here\n";
  text += fmt::format("allowed CPUs   {}\n", allowed_cpus(made));
  text += fmt::format("this place     {}\n", own_place());
  text += fmt::format("order          {}\n", walking_order(made));
  return text;
}

}  // namespace pith_info
