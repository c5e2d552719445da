#include "model/forced_algorithms.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

namespace pith {

namespace {

std::string full_name(const Algorithm& algorithm) {
  return fmt::format("{}:{}", name_of(algorithm.collective), algorithm.name);
}

// Finds "collective:name", or all algorithms of a bare name.
std::vector<const Algorithm*> named(std::string_view item) {
  const bool bare = item.find(':') == std::string_view::npos;
  std::vector<const Algorithm*> found;
  for (const Algorithm& algorithm : algorithms()) {
    if (bare ? algorithm.name == item : full_name(algorithm) == item) found.push_back(&algorithm);
  }
  return found;
}

Error unknown(std::string_view item) {
  std::string known;
  for (const Algorithm& algorithm : algorithms()) {
    known += (known.empty() ? "" : ", ") + full_name(algorithm);
  }
  return {Code::invalid_argument,
          fmt::format("PITH_ALGO names \"{}\", known are {}, or such a name without its collective",
                      item, known)};
}

// For a bare name, forces those of its algorithms that serve this many ranks.
Error force(std::string_view item, int ranks, ForcedAlgorithms& forced) {
  const std::vector<const Algorithm*> found = named(item);
  if (found.empty()) return unknown(item);
  int most = 0;
  for (const Algorithm* one : found) {
    most = std::max(most, one->ranks_max);
    if (ranks <= one->ranks_max) forced[static_cast<std::size_t>(one->collective)] = one;
  }
  if (ranks <= most) return {};
  return {Code::invalid_argument,
          fmt::format("PITH_ALGO names \"{}\", which serves up to {} ranks, not {}", item, most,
                      ranks)};
}

}  // namespace

Expected<ForcedAlgorithms> read_forced_algorithms(std::string_view text, int ranks) {
  ForcedAlgorithms bare{};
  ForcedAlgorithms full{};
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    const bool is_bare = item.find(':') == std::string_view::npos;
    if (Error error = force(item, ranks, is_bare ? bare : full)) return error;
  }
  for (std::size_t i = 0; i < full.size(); ++i) {
    if (full[i]) bare[i] = full[i];
  }
  return bare;
}

}  // namespace pith
