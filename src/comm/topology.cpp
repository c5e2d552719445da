#include "comm/topology.hpp"

#include <hwloc.h>

#include "core/per_process.hpp"

namespace pith {

namespace {

struct FreeBitmap {
  void operator()(hwloc_bitmap_t bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<std::remove_pointer_t<hwloc_bitmap_t>, FreeBitmap>;

}  // namespace

struct Topology::Machine {
  hwloc_topology_t topology = nullptr;
  std::string host = boot_id();

  Machine() = default;
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  ~Machine() {
    if (topology) hwloc_topology_destroy(topology);
  }

  // CPUs that a container may not use are kept, so that all its neighbours see the same objects.
  bool read() {
    return hwloc_topology_init(&topology) == 0 &&
           hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED) == 0 &&
           hwloc_topology_load(topology) == 0;
  }

  int holder_of(hwloc_const_bitmap_t cpus, hwloc_obj_type_t type) const {
    const int count = hwloc_get_nbobjs_by_type(topology, type);
    for (int i = 0; i < count; ++i) {
      const hwloc_obj_t object = hwloc_get_obj_by_type(topology, type, static_cast<unsigned>(i));
      if (hwloc_bitmap_isincluded(cpus, object->cpuset)) return hwloc_bitmap_first(object->cpuset);
    }
    return Locality::unknown;
  }

  Locality locate(hwloc_const_bitmap_t cpus) const {
    Locality found;
    found.host = host;
    if (hwloc_bitmap_iszero(cpus)) return found;
    found.package = holder_of(cpus, HWLOC_OBJ_PACKAGE);
    found.numa_node = holder_of(cpus, HWLOC_OBJ_NUMANODE);
    found.cache = holder_of(cpus, HWLOC_OBJ_L3CACHE);
    found.core = holder_of(cpus, HWLOC_OBJ_CORE);
    return found;
  }
};

Topology::Topology() : machine_(std::make_unique<Machine>()) {
  if (!machine_->read()) machine_.reset();
}

Topology::~Topology() = default;

Locality Topology::locate(std::span<const int> cpus) const {
  const Bitmap set(hwloc_bitmap_alloc());
  if (!machine_ || !set) return {};
  for (const int cpu : cpus) {
    if (hwloc_bitmap_set(set.get(), static_cast<unsigned>(cpu)) != 0) return {};
  }
  return machine_->locate(set.get());
}

Locality Topology::locate_this_thread() const {
  const Bitmap set(hwloc_bitmap_alloc());
  if (!machine_ || !set) return {};
  if (hwloc_get_cpubind(machine_->topology, set.get(), HWLOC_CPUBIND_THREAD) != 0) {
    hwloc_bitmap_zero(set.get());
  }
  return machine_->locate(set.get());
}

Locality own_locality() { return PerProcess<Topology>::get().locate_this_thread(); }

}  // namespace pith
