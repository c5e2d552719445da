// By which algorithms the library runs the calls of a run.
#pragma once

#include <cstddef>
#include <string>

#include "frame/collective.hpp"
#include "frame/options.hpp"

namespace pith_perf {

// Of a line of so many bytes.
Counts counts_of(const Collective& collective, std::size_t bytes, pithDataType_t type, int ranks);

// Of the larger buffer: the size that a line tells.
std::size_t bytes_of(const Counts& counts, pithDataType_t type);

// "none" of one rank, whose calls are copies but for those with a factor; empty where the program's
// calls go by none.
std::string algorithm_of(const Collective& collective, const Counts& counts, pithDataType_t type,
                         pithRedOp_t op, pithComm_t comm, int ranks);

// Comments for the table's head, a line for each type: "# Algorithms of float: ring from 8 B, ...".
// Empty where the program's calls go by none.
std::string algorithm_lines(const Options& options, const Collective& collective, pithComm_t comm,
                            int ranks);

}  // namespace pith_perf
