// hwloc's functions, loaded at first use: Pith runs without hwloc, and a program that preloads Pith
// does not get hwloc's dependencies. Included only by sources that are built where hwloc's headers
// are.
#pragma once

#include <hwloc.h>

namespace pith {

struct HwlocLibrary {
  bool there = false;  // all functions were found

  decltype(&::hwloc_topology_init) topology_init = nullptr;
  decltype(&::hwloc_topology_set_flags) topology_set_flags = nullptr;
  decltype(&::hwloc_topology_load) topology_load = nullptr;
  decltype(&::hwloc_topology_destroy) topology_destroy = nullptr;
  decltype(&::hwloc_get_type_depth) get_type_depth = nullptr;
  decltype(&::hwloc_get_nbobjs_by_depth) get_nbobjs_by_depth = nullptr;
  decltype(&::hwloc_get_obj_by_depth) get_obj_by_depth = nullptr;
  decltype(&::hwloc_get_cpubind) get_cpubind = nullptr;
  decltype(&::hwloc_bitmap_alloc) bitmap_alloc = nullptr;
  decltype(&::hwloc_bitmap_free) bitmap_free = nullptr;
  decltype(&::hwloc_bitmap_set) bitmap_set = nullptr;
  decltype(&::hwloc_bitmap_zero) bitmap_zero = nullptr;
  decltype(&::hwloc_bitmap_first) bitmap_first = nullptr;
  decltype(&::hwloc_bitmap_iszero) bitmap_iszero = nullptr;
  decltype(&::hwloc_bitmap_isincluded) bitmap_isincluded = nullptr;
};

// Loaded once, never unloaded. Thread-safe.
const HwlocLibrary& hwloc_library();

}  // namespace pith
