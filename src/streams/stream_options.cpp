#include "streams/stream_options.hpp"

#include <algorithm>

namespace pith {

namespace {

std::optional<bool> workers_asked_for(const Settings& settings) {
  if (settings.cuda_steps == "launch" || settings.cuda_launches_block) return false;
  if (settings.cuda_steps == "worker" || settings.one_cuda_connection) return true;
  return std::nullopt;
}

double warn_s_of(const Settings& settings) {
  constexpr double longest_s = 10;
  return settings.timeout > 0 ? std::min(longest_s, settings.timeout / 2) : longest_s;
}

}  // namespace

StreamOptions::StreamOptions(const Settings& settings)
    : cuda_ipc(settings.cuda_ipc),
      by_workers(workers_asked_for(settings)),
      blocks(settings.cuda_blocks),
      warn_s(warn_s_of(settings)) {}

}  // namespace pith
