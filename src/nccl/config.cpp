#include "nccl/config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>

namespace pith::nccl {

namespace {

constexpr int undefined = NCCL_CONFIG_UNDEF_INT;
constexpr int any = std::numeric_limits<int>::max();

// Numeric fields of a config: the version that introduced them and their range. Fields newer than
// the caller's version are ignored, whatever its `size` is.
struct Field {
  const char* name;
  int ncclConfig_t::*value;
  unsigned since;
  int least;
  int most;
};

constexpr Field fields[] = {
    {"blocking", &ncclConfig_t::blocking, 21400, 0, 1},
    {"cgaClusterSize", &ncclConfig_t::cgaClusterSize, 21700, 0, any},
    {"minCTAs", &ncclConfig_t::minCTAs, 21700, 1, any},
    {"maxCTAs", &ncclConfig_t::maxCTAs, 21700, 1, any},
    {"splitShare", &ncclConfig_t::splitShare, 21700, 0, 1},
    {"trafficClass", &ncclConfig_t::trafficClass, 22500, undefined, any},
    {"collnetEnable", &ncclConfig_t::collnetEnable, 22700, 0, 1},
    {"CTAPolicy", &ncclConfig_t::CTAPolicy, 22700, 0, 2},  // exclusive bits, as in 2.28
    {"shrinkShare", &ncclConfig_t::shrinkShare, 22700, 0, 1},
    {"nvlsCTAs", &ncclConfig_t::nvlsCTAs, 22700, 1, any},
    {"nChannelsPerNetPeer", &ncclConfig_t::nChannelsPerNetPeer, 22800, 1, 64},
    {"nvlinkCentricSched", &ncclConfig_t::nvlinkCentricSched, 22800, 0, 1},
};
constexpr unsigned name_since = 22700;

Error refuse(const char* function, const std::string& what) {
  return {Code::invalid_argument, fmt::format("{}: config->{}", function, what)};
}

Error check_fields(const char* function, ncclConfig_t& config) {
  for (const Field& field : fields) {
    int& value = config.*field.value;
    if (config.version < field.since) value = undefined;
    if (value == undefined || (value >= field.least && value <= field.most)) continue;
    const std::string most = field.most == any ? "" : fmt::format(" and at most {}", field.most);
    return refuse(function, fmt::format("{} is {}, expected at least {}{}", field.name, value,
                                        field.least, most));
  }
  // As in NCCL, an undefined maximum is below every minimum.
  if (config.minCTAs <= config.maxCTAs) return {};
  return refuse(function, fmt::format("minCTAs is {} and maxCTAs {}, expected both in this order",
                                      config.minCTAs, config.maxCTAs));
}

}  // namespace

Expected<std::optional<pithConfig_t>> read_config(const char* function, const ncclConfig_t* given,
                                                  std::optional<int> blocking) {
  std::optional<pithConfig_t> result;
  if (!given && !blocking) return result;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  if (given) {
    const std::size_t size = std::min(given->size, sizeof config);
    if (size < offsetof(ncclConfig_t, blocking)) {
      return refuse(function, fmt::format("size is {}, expected {}: begin with "
                                          "NCCL_CONFIG_INITIALIZER",
                                          given->size, sizeof config));
    }
    std::memcpy(&config, given, size);
    if (config.magic != NCCL_API_MAGIC) {
      return refuse(function, fmt::format("magic is {:#x}, expected {:#x}: begin with "
                                          "NCCL_CONFIG_INITIALIZER",
                                          config.magic, NCCL_API_MAGIC));
    }
    if (Error error = check_fields(function, config)) return error;
  }
  result = PITH_CONFIG_INITIALIZER;
  // Only a NULL config makes a child inherit.
  if (given) {
    result->blocking = config.blocking == undefined ? 1 : config.blocking;
    result->commName = config.version >= name_since && config.commName ? config.commName : "";
  }
  if (blocking) result->blocking = *blocking;
  return result;
}

}  // namespace pith::nccl
