// The log's lines as NCCL writes them, and which of them its variables let through.
#pragma once

#include <ctime>
#include <string>

#include "core/log.hpp"
#include "settings/settings.hpp"

namespace pith::nccl {

// NCCL_DEBUG_SUBSYS and NCCL_DEBUG_TIMESTAMP_..., read. As in NCCL, unknown words choose nothing.
class LogLines {
 public:
  explicit LogLines(const Variables& variables);

  // Warnings are shown whatever they are about.
  bool shows(LogLevel level, LogTopic topic) const;
  // What comes before a line of the level, in local time; empty where it is to have none.
  std::string stamp(LogLevel level, const timespec& time) const;
  std::string stamp_of_version(const timespec& time) const;

 private:
  std::string formatted(const timespec& time) const;

  unsigned topics_;   // a bit each
  unsigned stamped_;  // levels, a bit each
  std::string format_;
};

// NCCL_DEBUG_FILE's %h and %p, host and process, and %%; other words stay as they are.
std::string expand(const std::string& pattern);

// From NCCL_DEBUG on the log looks as NCCL's does. Once in a process; then it says the version,
// where NCCL_DEBUG is one of its levels. By those above VERSION the file is written.
void open_log(const Variables& variables);
bool log_is_open();

}  // namespace pith::nccl
