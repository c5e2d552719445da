// Log lines in NCCL's format, and the filter by NCCL's variables.
#pragma once

#include <ctime>
#include <string>

#include "core/log.hpp"
#include "settings/settings.hpp"

namespace pith::nccl {

// NCCL_DEBUG_SUBSYS and NCCL_DEBUG_TIMESTAMP_..., parsed. As in NCCL, unknown words are ignored.
class LogLines {
 public:
  explicit LogLines(const Variables& variables);

  // Warnings are shown whatever their topic.
  bool shows(LogLevel level, LogTopic topic) const;
  // The time stamp of a line of this level, in local time; empty if it has none.
  std::string stamp(LogLevel level, const timespec& time) const;
  std::string stamp_of_version(const timespec& time) const;

 private:
  std::string formatted(const timespec& time) const;

  unsigned topics_;   // one bit per topic
  unsigned stamped_;  // one bit per level
  std::string format_;
};

// Replaces %h (host), %p (process) and %% in NCCL_DEBUG_FILE; other sequences stay.
std::string expand(const std::string& pattern);

// Switches the log to NCCL's format if NCCL_DEBUG is set, and prints the version if it is a known
// level. Levels above VERSION write to the file. Only the first call in a process has an effect.
void open_log(const Variables& variables);
bool log_is_open();

}  // namespace pith::nccl
