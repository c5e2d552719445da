#include "comm/algorithm_rule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace pith {

Expected<ForcedAlgorithms> read_algorithm_rule(std::string_view text, int ranks) {
  ForcedAlgorithms forced{};
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    const Algorithm* found = nullptr;
    std::string known;
    for (const Algorithm& algorithm : algorithms()) {
      const std::string name = fmt::format("{}:{}", name_of(algorithm.collective), algorithm.name);
      known += (known.empty() ? "" : ", ") + name;
      if (name == item) found = &algorithm;
    }
    if (!found) {
      return Error(Code::invalid_argument,
                   fmt::format("PITH_ALGO names \"{}\", known are {}", item, known));
    }
    if (ranks > found->ranks_max) {
      return Error(Code::invalid_argument,
                   fmt::format("PITH_ALGO names \"{}\", which serves up to {} ranks, not {}", item,
                               found->ranks_max, ranks));
    }
    forced[static_cast<std::size_t>(found->collective)] = found;
  }
  return forced;
}

}  // namespace pith
