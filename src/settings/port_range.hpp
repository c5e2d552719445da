#pragma once

#include <cstdint>
#include <string_view>

namespace pith {

// 0 to 0: any free port; else the first free one of the range.
struct PortRange {
  std::uint16_t first = 0;
  std::uint16_t last = 0;
  std::string_view setting = "PITH_PORT_RANGE";  // where it comes from, for errors
};

}  // namespace pith
