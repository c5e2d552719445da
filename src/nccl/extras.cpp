#include "nccl/extras.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "comm/launch.hpp"
#include "core/log.hpp"
#include "core/settings.hpp"

namespace pith::nccl {

namespace {

std::atomic<const Extras*> the_extras{nullptr};
std::atomic<int> job_size{0};
std::mutex reading;
bool has_read = false;

// What the launcher says, 0 where there is none.
int launched_size(const Settings& settings) {
  const Expected<Launch> launch =
      read_launch(variables_from_environment(launch_variables()), settings);
  return launch ? launch->size : 0;
}

}  // namespace

const Extras* extras() { return the_extras.load(std::memory_order_acquire); }

Error read_extras() {
  const std::lock_guard lock(reading);
  if (has_read) return {};
  const Expected<Settings> settings = settings_from_environment();
  if (!settings) return settings.error();
  set_log_level(settings->log);
  auto extras = std::make_unique<Extras>();
  if (!settings->compress.empty()) {
    Expected<CompressionRules> rules =
        CompressionRules::parse(settings->compress, settings->compress_comm);
    if (!rules) return rules.error();
    extras->compression = std::move(*rules);
    log(LogLevel::info, extras->compression->describe());
  }
  if (!settings->nccl_fallback.empty()) {
    Expected<std::unique_ptr<Fallback>> loaded =
        Fallback::load(settings->nccl_fallback, settings->nccl_fallback_for);
    if (!loaded) return loaded.error();
    extras->fallback = std::move(*loaded);
  }
  const int launched = launched_size(*settings);
  if (launched > 0) note_job_size(launched);
  has_read = true;
  // Never freed: calls of other threads may look at it while the process ends.
  if (extras->compression || extras->fallback) the_extras.store(extras.release());
  return {};
}

void note_job_size(int ranks) {
  int known = job_size.load();
  while (known < ranks && !job_size.compare_exchange_weak(known, ranks)) {
  }
}

bool spans_job(int ranks) { return ranks >= job_size.load(); }

}  // namespace pith::nccl
