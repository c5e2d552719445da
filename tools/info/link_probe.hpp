// Measures a job's links by ping-pongs, half of whose time is a transfer, and this process's sums.
#pragma once

#include <pith/pith.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "link_pairs.hpp"
#include "model/link_table.hpp"

namespace pith_info {

// To be in the environment when the communicator is made: broadcasts, by which memory in reach is
// read, are then by views, and private memory of all sizes measured is copied.
inline constexpr std::array<std::pair<const char*, const char*>, 2> probe_variables = {
    {{"PITH_ALGO", "broadcast:views"}, {"PITH_COPY_BYTES", "4096"}}};

inline constexpr std::size_t most_paths = 15;  // of six hosts

struct ProbedLink {
  std::string name;  // as in the saved table
  std::string where;
  pith::LinkEstimate* estimate;  // in the table
};

struct ProbedLinks {
  pith::LinkTable table{most_paths};
  std::vector<ProbedLink> links;
};

// Collective. All ranks get the same result. Takes some 200 ms for each pair, or a hundred round
// trips if these are longer; only one pair talks at a time, so that nobody's traffic is in the way:
// what several transfers at once cost is not in the result. Throws std::runtime_error.
void probe_links(pithComm_t comm, ProbedLinks& found);

}  // namespace pith_info
