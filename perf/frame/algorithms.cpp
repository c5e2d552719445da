#include "frame/algorithms.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "frame/data.hpp"

namespace pith_perf {

Counts counts_of(const Collective& collective, std::size_t bytes, pithDataType_t type, int ranks) {
  const std::size_t element = size_of(type);
  return collective.counts(bytes / element, 16 / element, static_cast<std::size_t>(ranks));
}

std::vector<int> roots_of(const Options& options, const Collective& collective, int ranks) {
  if (!collective.has_root) return {0};
  if (options.root >= 0) return {options.root};
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::size_t bytes_of(const Counts& counts, pithDataType_t type) {
  return std::max(counts.send, counts.recv) * size_of(type);
}

std::string algorithm_of(const Collective& collective, const Counts& counts, pithDataType_t type,
                         pithRedOp_t op, pithComm_t comm, int ranks) {
  const std::string name(collective.name);
  const char* algorithm = nullptr;
  if (pithCommGetAlgorithm(comm, name.c_str(), counts.call, type, &algorithm) != pithSuccess) {
    return {};
  }
  return ranks == 1 && op != mulsum ? "none" : algorithm;
}

namespace {

// "ring from 8 B, ..."; for the sizes of the table's lines.
std::string changes_of(const Options& options, const Collective& collective, pithDataType_t type,
                       pithRedOp_t op, pithComm_t comm, int ranks) {
  std::string changes;
  std::string last;
  for (std::size_t size = options.min_bytes; size <= options.max_bytes;
       size = options.after(size)) {
    const Counts counts = counts_of(collective, size, type, ranks);
    const std::string algorithm = algorithm_of(collective, counts, type, op, comm, ranks);
    if (last == algorithm) continue;
    last = algorithm;
    changes +=
        fmt::format("{}{} from {} B", changes.empty() ? "" : ", ", last, bytes_of(counts, type));
  }
  return changes;
}

}  // namespace

std::string algorithm_lines(const Options& options, const Collective& collective, pithComm_t comm,
                            int ranks) {
  const auto end = options.ops.end();
  const bool factor = collective.has_op && std::find(options.ops.begin(), end, mulsum) != end;
  std::string lines;
  for (const pithDataType_t type : options.types) {
    const std::string changes = changes_of(options, collective, type, mulsum, comm, ranks);
    if (changes.empty()) return {};
    std::string what = changes;
    if (ranks == 1) what = "none, one rank" + (factor ? "; of mulsum: " + changes : "");
    lines += fmt::format("# Algorithms of {}: {}\n", type_names[type], what);
  }
  return lines;
}

}  // namespace pith_perf
