#include "frame/listing.hpp"

#include <fmt/format.h>

#include "collectives/algorithm.hpp"
#include "settings/transport_names.hpp"

namespace pith_perf {

std::string list_algorithms(std::string_view collective) {
  std::string lines;
  for (const pith::Algorithm& algorithm : pith::algorithms()) {
    if (name_of(algorithm.collective) != collective) continue;
    lines += fmt::format("{}:{}\n", collective, algorithm.name);
  }
  return lines;
}

std::string list_transports() {
  std::string lines;
  for (const std::string_view name : pith::transport_names) {
    lines += fmt::format("{}\n", name);
  }
  return lines;
}

}  // namespace pith_perf
