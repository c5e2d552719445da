// The output of --algo list and --transport list.
#pragma once

#include <string>
#include <string_view>

namespace pith_perf {

// The algorithms of a collective, one per line, as PITH_ALGO takes them: "allreduce:ring".
std::string list_algorithms(std::string_view collective);
// The transports, one per line, as PITH_TRANSPORT takes them.
std::string list_transports();

}  // namespace pith_perf
