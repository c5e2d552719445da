// When a compressed call that may be dense (bypass=auto) is better so. The same on all ranks: all
// that it looks at is agreed.
#pragma once

#include <cstddef>

#include "collectives/hosts.hpp"
#include "compress/spec.hpp"

namespace pith {

// `views`: all ranks reach each other's memory.
bool is_faster_dense(const Spec& spec, std::size_t count, int ranks, bool views);
// Of hierarchy=host, where hosts have several ranks and are joined by wires.
bool is_faster_dense_by_host(const Spec& spec, std::size_t count, const Hosts& hosts);

}  // namespace pith
