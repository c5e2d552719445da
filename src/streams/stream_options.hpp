// How calls on streams run, by the settings and the other ranks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "settings/settings.hpp"

namespace pith {

struct StreamOptions {
  explicit StreamOptions(const Settings& settings);
  bool cuda_ipc;
  std::optional<bool> by_workers;  // null: where no other process's ranks use the device
  unsigned blocks;
  double warn_s;  // after how long a log line tells of a call that stands still
  std::vector<std::string> devices_of_others = {};  // of other processes' ranks, by cuda::uuid_of
};

}  // namespace pith
