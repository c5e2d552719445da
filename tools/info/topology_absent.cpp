#include "topology.hpp"

namespace pith_info {

std::string topology() {
  return "topology: not known, this build has no hwloc (install libhwloc-dev and build again)\n";
}

}  // namespace pith_info
