#include "nccl/extras.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "core/log.hpp"
#include "settings/settings.hpp"
#include "startup/launch.hpp"

namespace pith::nccl {

namespace {

std::atomic<const Extras*> the_extras{nullptr};
std::mutex reading;
bool has_read = false;

struct Job {
  std::mutex mutex;
  int launched = 0;                               // size told by the launcher; 0: none
  int size = 0;                                   // that, or the largest communicator's so far
  std::map<int, std::multiset<std::string>> ids;  // ids of living communicators, by size
  int unlike_others = 0;
};

// Never destroyed: communicators may outlive the end of main.
Job& job() {
  static auto* const instance = new Job;
  return *instance;
}

std::string new_id() {
  const std::lock_guard lock(job().mutex);
  return std::to_string(job().unlike_others++);
}

// The size told by the launcher; 0: none.
int launched_size(const Settings& settings) {
  const Expected<Launch> launch =
      read_launch(variables_from_environment(launch_variables()), settings);
  return launch ? launch->size : 0;
}

// False if a program has more ranks than were launched, as in a shell of a one-task job.
// Precondition: the mutex is held.
bool launcher_knows() { return job().launched > 0 && job().size <= job().launched; }

void note_launched(int ranks) {
  const std::lock_guard lock(job().mutex);
  job().launched = ranks;
  job().size = std::max(job().size, ranks);
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
  if (!settings->fallback.library.empty()) {
    if (settings->tcp.encrypt) {
      return {Code::invalid_argument,
              "PITH_NCCL_FALLBACK and PITH_ENCRYPT=1 are both set, but the other NCCL does not "
              "encrypt"};
    }
    Expected<std::unique_ptr<Fallback>> loaded = Fallback::load(
        settings->fallback.library, settings->fallback.for_calls, settings->fallback.lines);
    if (!loaded) return loaded.error();
    extras->fallback = std::move(*loaded);
  }
  const int launched = launched_size(*settings);
  if (launched > 0) note_launched(launched);
  has_read = true;
  // Never freed: other threads may read it while the process exits.
  if (extras->compression || extras->fallback) the_extras.store(extras.release());
  return {};
}

JobPart::JobPart(int ranks, std::string id)
    : ranks_(ranks), id_(id.empty() ? new_id() : std::move(id)) {
  const std::lock_guard lock(job().mutex);
  job().size = std::max(job().size, ranks_);
  job().ids[ranks_].insert(id_);
}

JobPart::~JobPart() {
  const std::lock_guard lock(job().mutex);
  auto& ids = job().ids[ranks_];
  ids.erase(ids.find(id_));
}

bool spans_job(int ranks) {
  const std::lock_guard lock(job().mutex);
  if (ranks < job().size) return false;
  const auto& ids = job().ids[ranks];
  return launcher_knows() || ids.empty() || *ids.begin() == *ids.rbegin();
}

bool job_size_is_guessed() {
  const std::lock_guard lock(job().mutex);
  return !launcher_knows();
}

}  // namespace pith::nccl
