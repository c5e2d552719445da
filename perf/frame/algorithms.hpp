// By which algorithms the library runs the calls of a run.
#pragma once

#include <cstddef>
#include <string>

#include "frame/collective.hpp"
#include "frame/options.hpp"

namespace pith_perf {

// Of a line of so many bytes.
Counts counts_of(const Collective& collective, std::size_t bytes, pithDataType_t type, int ranks);

// Comments for the table's head, a line for each type: "# Algorithms of float: ring from 8 B, ...".
// Empty where the program's calls go by none.
std::string algorithm_lines(const Options& options, const Collective& collective, pithComm_t comm,
                            int ranks);

}  // namespace pith_perf
