#include "collectives/registry.hpp"

namespace pith {

std::string_view name_of(Collective collective) {
  constexpr std::string_view names[] = {"allreduce", "broadcast",      "allgather", "barrier",
                                        "reduce",    "reduce_scatter", "alltoall",  "gather",
                                        "scatter",   "split"};
  return names[static_cast<int>(collective)];
}

std::span<const Algorithm> algorithms() { return algorithm_table; }

const Algorithm* find_algorithm(Collective collective, std::string_view name) {
  for (const Algorithm& algorithm : algorithm_table) {
    if (algorithm.collective == collective && algorithm.name == name) return &algorithm;
  }
  return nullptr;
}

}  // namespace pith
