// The machine's topology, as far as it matters to ranks that share it.
#pragma once

#include <string>

namespace pith_info {

// Several lines: sockets, NUMA nodes, shared caches, usable cores. One line with the reason if it
// is unknown.
std::string topology();

}  // namespace pith_info
