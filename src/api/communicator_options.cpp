#include "api/communicator_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace pith::api {

Expected<CommunicatorOptions> read_config(const char* function, const pithConfig_t* given,
                                          CommunicatorOptions options) {
  if (!given) return options;
  const auto refuse = [&](const std::string& what) {
    return Error(Code::invalid_argument, fmt::format("{}: config->{}", function, what));
  };
  if (given->magic != PITH_CONFIG_MAGIC) {
    return refuse(fmt::format("magic is {:#x}, expected {:#x}: begin with PITH_CONFIG_INITIALIZER",
                              given->magic, PITH_CONFIG_MAGIC));
  }
  pithConfig_t config = PITH_CONFIG_INITIALIZER;
  std::memcpy(&config, given, std::min(given->size, sizeof config));
  if (config.blocking != PITH_CONFIG_UNDEF_INT) {
    if (config.blocking != 0 && config.blocking != 1) {
      return refuse(fmt::format("blocking is {}, expected 0 or 1", config.blocking));
    }
    options.blocking = config.blocking != 0;
  }
  if (config.timeout != PITH_CONFIG_UNDEF_INT) {
    if (config.timeout < 0) {
      return refuse(fmt::format("timeout is {}, expected at least 0", config.timeout));
    }
    options.timeout_s = config.timeout;
  }
  if (config.commName) options.name = config.commName;
  return options;
}

}  // namespace pith::api
