#include "startup/hwloc_library.hpp"

#include <dlfcn.h>

#include "core/log.hpp"

namespace pith {

namespace {

static_assert(HWLOC_API_VERSION >> 16 == 2, "another version has another ABI, and name");
constexpr const char* soname = "libhwloc.so.15";

template <class Function>
bool find(void* library, Function& function, const char* name) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

HwlocLibrary load() {
  HwlocLibrary hwloc;
  void* const library = dlopen(soname, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!library) {
    log(LogLevel::debug, std::string("ranks are ordered by host alone: ") + dlerror(),
        LogTopic::graph);
    return hwloc;
  }
  hwloc.there = find(library, hwloc.topology_init, "hwloc_topology_init") &&
                find(library, hwloc.topology_set_flags, "hwloc_topology_set_flags") &&
                find(library, hwloc.topology_load, "hwloc_topology_load") &&
                find(library, hwloc.topology_destroy, "hwloc_topology_destroy") &&
                find(library, hwloc.get_type_depth, "hwloc_get_type_depth") &&
                find(library, hwloc.get_nbobjs_by_depth, "hwloc_get_nbobjs_by_depth") &&
                find(library, hwloc.get_obj_by_depth, "hwloc_get_obj_by_depth") &&
                find(library, hwloc.get_cpubind, "hwloc_get_cpubind") &&
                find(library, hwloc.bitmap_alloc, "hwloc_bitmap_alloc") &&
                find(library, hwloc.bitmap_free, "hwloc_bitmap_free") &&
                find(library, hwloc.bitmap_set, "hwloc_bitmap_set") &&
                find(library, hwloc.bitmap_zero, "hwloc_bitmap_zero") &&
                find(library, hwloc.bitmap_first, "hwloc_bitmap_first") &&
                find(library, hwloc.bitmap_iszero, "hwloc_bitmap_iszero") &&
                find(library, hwloc.bitmap_isincluded, "hwloc_bitmap_isincluded");
  return hwloc;
}

}  // namespace

const HwlocLibrary& hwloc_library() {
  static const HwlocLibrary library = load();
  return library;
}

}  // namespace pith
