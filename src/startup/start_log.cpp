#include "startup/start_log.hpp"

#include <fmt/format.h>

#include <mutex>
#include <set>

#include "core/clock.hpp"
#include "settings/settings_origin.hpp"

namespace pith {

StartLog::StartLog(std::string what, int rank, int ranks, LogLevel level)
    : what_(std::move(what)),
      rank_(rank),
      ranks_(ranks),
      level_(level),
      begin_ns_(monotonic_ns()),
      last_ns_(begin_ns_) {}

double StartLog::ms_since_start() const {
  return static_cast<double>(monotonic_ns() - begin_ns_) / 1e6;
}

void StartLog::tell(const std::string& line) const {
  log(LogLevel::debug, fmt::format("{}, rank {} of {}: {}", what_, rank_, ranks_, line));
}

void StartLog::begins(const Settings& settings) {
  if (rank_ == 0) warn_of_unknown_variables();
  if (!logs(LogLevel::debug)) return;
  const std::vector<std::string> changed = changed_settings(settings);
  tell(changed.empty() ? "settings: all as by default"
                       : fmt::format("settings: {}", fmt::join(changed, ", ")));
}

void StartLog::phase(std::string_view name) {
  const std::uint64_t now_ns = monotonic_ns();
  phases_ += fmt::format("{}{} {:.1f}", phases_.empty() ? "" : ", ", name,
                         static_cast<double>(now_ns - last_ns_) / 1e6);
  last_ns_ = now_ns;
}

void StartLog::ends(const std::string& how) {
  if (logs(LogLevel::debug) && !phases_.empty()) {
    tell(fmt::format("ready after {:.1f} ms: {}", ms_since_start(), phases_));
  }
  if (rank_ != 0) return;
  log(level_, fmt::format("{} of {} rank{} ready after {:.1f} ms: {}", what_, ranks_,
                          ranks_ == 1 ? "" : "s", ms_since_start(), how));
}

std::string ranges(std::span<const int> numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", numbers[i]);
    if (last > i) text += fmt::format("-{}", numbers[last]);
    i = last + 1;
  }
  return text;
}

void warn_of_unknown_variables() {
  static std::mutex mutex;
  static auto* const told = new std::set<std::string>;
  for (const std::string& line : unknown_variables()) {
    const std::lock_guard lock(mutex);
    if (told->insert(line).second) log(LogLevel::warn, line);
  }
}

}  // namespace pith
