// The algorithms that the library uses for a run's calls.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "frame/collective.hpp"
#include "frame/options.hpp"

namespace pith_perf {

// For a line of `bytes` bytes.
Counts counts_of(const Collective& collective, std::size_t bytes, pithDataType_t type, int ranks);

// The roots of a run's calls, one of them if the collective has none.
std::vector<int> roots_of(const Options& options, const Collective& collective, int ranks);

// Bytes of the larger buffer: the size printed in a line.
std::size_t bytes_of(const Counts& counts, pithDataType_t type);

// "none" with one rank, whose calls are copies except those with a factor; empty if the collective
// has no algorithms.
std::string algorithm_of(const Collective& collective, const Counts& counts, pithDataType_t type,
                         pithRedOp_t op, pithComm_t comm, int ranks);

// Comments for the table's head, one line per type: "# Algorithms of float: ring from 8 B, ...".
// Empty if the collective has no algorithms.
std::string algorithm_lines(const Options& options, const Collective& collective, pithComm_t comm,
                            int ranks);

}  // namespace pith_perf
