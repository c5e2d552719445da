#include "tools/demo/check.hpp"

#include <fmt/format.h>

#include <stdexcept>
#include <string_view>

namespace pith::demo {

void check(pithResult_t result, const char* call, pithComm_t comm) {
  if (result == pithSuccess) return;
  std::string_view detail = pithGetLastError(comm);
  if (detail.empty()) detail = pithGetLastError(nullptr);
  throw std::runtime_error(fmt::format("{}: {}{}{}", call, pithGetErrorString(result),
                                       detail.empty() ? "" : ": ", detail));
}

}  // namespace pith::demo
