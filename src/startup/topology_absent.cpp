// Built without hwloc: only the host is known.
#include "startup/topology.hpp"

namespace pith {

struct Topology::Machine {};
Topology::Topology() = default;
Topology::~Topology() = default;
Locality Topology::locate(std::span<const int>) const { return {.host = boot_id()}; }
Locality Topology::locate_this_thread() const { return locate({}); }
Locality own_locality() { return Topology().locate({}); }

}  // namespace pith
