#include "question.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <map>
#include <stdexcept>

#include "model/nominal.hpp"

namespace pith_explain {

using pith::Code;
using pith::Error;
using pith::Expected;

namespace {

Error wrong(std::string_view flag, std::string_view text, std::string_view expected) {
  return {Code::invalid_argument, fmt::format("{} is \"{}\", expected {}", flag, text, expected)};
}

constexpr pith::LinkCost network_of(double bits_a_second) {
  pith::LinkCost link = pith::nominal::wire;
  link.beta = 8 / bits_a_second;
  return link;
}

struct Named {
  std::string_view name;
  Link link;
};
constexpr std::array links{
    Named{"shm", {pith::nominal::memory, true}},
    Named{"10g", {network_of(10e9)}},
    Named{"1g", {network_of(1e9)}},
    Named{"100m", {network_of(1e8)}},
};

// Empty if there is no number with a unit of these.
std::optional<double> number_of(std::string text, const CLI::AsNumberWithUnit& unit) {
  try {
    if (!unit(text).empty()) return {};
    return std::stod(text);
  } catch (const std::exception&) {  // of CLI11 and of the standard library
    return {};
  }
}

const CLI::AsNumberWithUnit seconds(
    std::map<std::string, double>{{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}},
    CLI::AsNumberWithUnit::UNIT_REQUIRED);
const CLI::AsSizeValue in_bytes(false);  // 64k, 64KiB and 65536 are the same

}  // namespace

Expected<Link> parse_link(std::string_view flag, const std::string& text) {
  constexpr std::string_view expected = "shm, 10g, 1g or 100m, and perhaps a delay, as in 1g,+5ms";
  const std::size_t comma = text.find(',');
  const std::string_view name = std::string_view(text).substr(0, comma);
  for (const Named& known : links) {
    if (known.name != name) continue;
    Link link = known.link;
    if (comma == std::string::npos) return link;
    if (text.compare(comma + 1, 1, "+") != 0) return wrong(flag, text, expected);
    const std::optional<double> delay = number_of(text.substr(comma + 2), seconds);
    if (!delay || !(*delay >= 0)) return wrong(flag, text, expected);
    link.cost.alpha += *delay;
    return link;
  }
  return wrong(flag, text, expected);
}

Expected<std::size_t> parse_size(std::string_view flag, const std::string& text) {
  const std::optional<double> bytes = number_of(text, in_bytes);
  const bool is_size = bytes && *bytes >= 1 && *bytes <= 0x1p53;
  if (!is_size) return wrong(flag, text, "a size as 4096, 64K or 4M, of at least a byte");
  return static_cast<std::size_t>(*bytes);
}

Expected<Sizes> parse_sizes(std::string_view flag, const std::string& text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) return wrong(flag, text, "two sizes as 64:4M");
  const Expected<std::size_t> low = parse_size(flag, text.substr(0, colon));
  if (!low) return low.error();
  const Expected<std::size_t> high = parse_size(flag, text.substr(colon + 1));
  if (!high) return high.error();
  if (*low > *high) return wrong(flag, text, "two sizes, the smaller one first");
  return Sizes{*low, *high};
}

std::vector<std::size_t> doubled(const Sizes& sizes) {
  std::vector<std::size_t> all{sizes.low};
  while (all.back() > 0 && all.back() <= sizes.high / 2) all.push_back(2 * all.back());
  return all;
}

Expected<pith::Collective> parse_collective(std::string_view flag, const std::string& text) {
  std::string known;
  for (const pith::Algorithm& algorithm : pith::algorithms()) {
    const std::string_view name = name_of(algorithm.collective);
    if (name == text) return algorithm.collective;
    if (known.find(name) == std::string::npos)
      known += (known.empty() ? "" : ", ") + std::string(name);
  }
  return wrong(flag, text, "one of " + known);
}

}  // namespace pith_explain
