// Options of calls on streams, from the settings and the other ranks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "settings/settings.hpp"

namespace pith {

struct StreamOptions {
  explicit StreamOptions(const Settings& settings);
  bool cuda_ipc;
  std::optional<bool> by_workers;  // empty: if no rank of another process uses the device
  unsigned blocks;
  double warn_s;                                    // seconds after which a stalled call is logged
  std::vector<std::string> devices_of_others = {};  // of ranks in other processes, as cuda::uuid_of
};

}  // namespace pith
