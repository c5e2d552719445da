// Whether a compressed call with bypass=auto is faster dense. The same on all ranks, because all
// inputs are agreed.
#pragma once

#include <cstddef>

#include "collectives/algorithm.hpp"
#include "collectives/hosts.hpp"
#include "compress/spec.hpp"

namespace pith {

bool is_faster_dense(const Spec& spec, std::size_t count, int ranks, const LinkCost& link);
// For hierarchy=host: hosts with several ranks each, connected by a network; count > 0.
double compressed_seconds_by_host(const Spec& spec, std::size_t count, const Hosts& hosts,
                                  const LinkCost& wire);
double dense_seconds_by_host(std::size_t count, const Hosts& hosts, const LinkCost& wire);
bool is_faster_dense_by_host(const Spec& spec, std::size_t count, const Hosts& hosts,
                             const LinkCost& wire);

}  // namespace pith
