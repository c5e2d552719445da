// What this machine is made of, as far as it matters to ranks that share it.
#pragma once

#include <string>

namespace pith_info {

// Several lines: sockets, NUMA nodes, caches that cores share, cores this process may use. Where
// this build or this machine cannot tell, one line that says so.
std::string topology();

}  // namespace pith_info
