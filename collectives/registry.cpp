#include "collectives/registry.hpp"

#include <algorithm>
#include <iterator>

namespace pith {

std::string_view name_of(Collective collective) {
  constexpr std::string_view names[] = {"allreduce", "broadcast",      "allgather", "barrier",
                                        "reduce",    "reduce_scatter", "alltoall",  "gather",
                                        "scatter",   "scan",           "exscan",    "split"};
  return names[static_cast<int>(collective)];
}

std::string_view name_of(const CollectiveArgs& args) {
  if (!args.uneven.used()) return name_of(args.collective);
  if (args.collective == Collective::allgather) return "allgatherv";
  return args.collective == Collective::alltoall ? "alltoallv" : "reduce_scatterv";
}

std::string_view name_of(Variant variant) {
  constexpr std::string_view names[] = {"", "by copies", "in long chunks", "in short chunks"};
  static_assert(std::size(names) == variant_count);
  return names[static_cast<int>(variant)];
}

Tuning varied(Tuning tuning, Variant variant) {
  constexpr std::size_t factor = 4;
  if (variant == Variant::copies) tuning.copies = true;
  if (variant == Variant::long_chunks) tuning.chunk_bytes *= factor;
  if (variant == Variant::short_chunks) {
    tuning.chunk_bytes = std::max<std::size_t>(tuning.chunk_bytes / factor, 1);
  }
  return tuning;
}

std::span<const Algorithm> algorithms() { return algorithm_table; }

const Algorithm* find_algorithm(Collective collective, std::string_view name) {
  for (const Algorithm& algorithm : algorithm_table) {
    if (algorithm.collective == collective && algorithm.name == name) return &algorithm;
  }
  return nullptr;
}

}  // namespace pith
