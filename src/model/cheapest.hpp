// The dense algorithm of a call by what its messages cost on a link.
#pragma once

#include "collectives/algorithm.hpp"

namespace pith {

// Seconds of the call on links like this, with what the cost functions leave to others: ranks of a
// host share its ports, and many senders overflow the queue of one. The cost of an algorithm that
// can use views is that of its messages.
double cost_on(const LinkCost& link, const Algorithm& algorithm, const Shape& shape);

// Seconds that calls wait on average until lost packets are sent again, where many hosts send to
// one port. Most calls wait for none, so this is no part of a cost that is compared with times.
double mean_timeout(const Algorithm& algorithm, const Shape& shape);

// Both: by what algorithms are compared with each other.
double mean_cost_on(const LinkCost& link, const Algorithm& algorithm, const Shape& shape);

// The one that costs least on links like this; of nearly equal ones, and over views, that of the
// rule (rules.hpp).
const Algorithm& cheapest_algorithm(const Shape& shape, Collective collective,
                                    const LinkCost& link);

}  // namespace pith
