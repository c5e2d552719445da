#include "frame/algorithms.hpp"

#include <fmt/format.h>

#include "frame/data.hpp"

namespace pith_perf {

Counts counts_of(const Collective& collective, std::size_t bytes, pithDataType_t type, int ranks) {
  const std::size_t element = size_of(type);
  return collective.counts(bytes / element, 16 / element, static_cast<std::size_t>(ranks));
}

std::string algorithm_lines(const Options& options, const Collective& collective, pithComm_t comm,
                            int ranks) {
  const std::string name(collective.name);
  std::string lines;
  for (const pithDataType_t type : options.types) {
    std::string changes;
    std::string last;
    for (std::size_t size = options.min_bytes; size <= options.max_bytes;
         size = options.after(size)) {
      const Counts counts = counts_of(collective, size, type, ranks);
      const char* algorithm = nullptr;
      if (pithCommGetAlgorithm(comm, name.c_str(), counts.call, type, &algorithm) != pithSuccess) {
        return {};
      }
      if (last == algorithm) continue;
      last = algorithm;
      changes += fmt::format("{}{} from {} B", changes.empty() ? "" : ", ", last, size);
    }
    lines += fmt::format("# Algorithms of {}: {}\n", type_names[type], changes);
  }
  return lines;
}

}  // namespace pith_perf
