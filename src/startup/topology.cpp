#include "startup/topology.hpp"

#include "core/per_process.hpp"
#include "startup/hwloc_library.hpp"

namespace pith {

namespace {

struct FreeBitmap {
  void operator()(hwloc_bitmap_t bitmap) const { hwloc_library().bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<std::remove_pointer_t<hwloc_bitmap_t>, FreeBitmap>;

Bitmap empty_set() { return Bitmap(hwloc_library().bitmap_alloc()); }

Locality host_alone() { return {.host = boot_id()}; }

}  // namespace

struct Topology::Machine {
  const HwlocLibrary& hwloc = hwloc_library();
  hwloc_topology_t topology = nullptr;
  std::string host = boot_id();

  Machine() = default;
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  ~Machine() {
    if (topology) hwloc.topology_destroy(topology);
  }

  // Keeps CPUs that a container may not use, so that all containers of a host see the same objects.
  bool read() {
    return hwloc.there && hwloc.topology_init(&topology) == 0 &&
           hwloc.topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED) == 0 &&
           hwloc.topology_load(topology) == 0;
  }

  int holder_of(hwloc_const_bitmap_t cpus, hwloc_obj_type_t type) const {
    const int depth = hwloc.get_type_depth(topology, type);
    if (depth == HWLOC_TYPE_DEPTH_UNKNOWN || depth == HWLOC_TYPE_DEPTH_MULTIPLE) {
      return Locality::unknown;
    }
    const unsigned count = hwloc.get_nbobjs_by_depth(topology, depth);
    for (unsigned i = 0; i < count; ++i) {
      const hwloc_obj_t object = hwloc.get_obj_by_depth(topology, depth, i);
      if (hwloc.bitmap_isincluded(cpus, object->cpuset)) return hwloc.bitmap_first(object->cpuset);
    }
    return Locality::unknown;
  }

  Locality locate(hwloc_const_bitmap_t cpus) const {
    Locality found;
    found.host = host;
    if (hwloc.bitmap_iszero(cpus)) return found;
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
  if (!machine_) return host_alone();
  const Bitmap set = empty_set();
  if (!set) return host_alone();
  for (const int cpu : cpus) {
    if (machine_->hwloc.bitmap_set(set.get(), static_cast<unsigned>(cpu)) != 0) {
      return host_alone();
    }
  }
  return machine_->locate(set.get());
}

Locality Topology::locate_this_thread() const {
  if (!machine_) return host_alone();
  const Bitmap set = empty_set();
  if (!set) return host_alone();
  const HwlocLibrary& hwloc = machine_->hwloc;
  if (hwloc.get_cpubind(machine_->topology, set.get(), HWLOC_CPUBIND_THREAD) != 0) {
    hwloc.bitmap_zero(set.get());
  }
  return machine_->locate(set.get());
}

Locality own_locality() { return PerProcess<Topology>::get().locate_this_thread(); }

}  // namespace pith
