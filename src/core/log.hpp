// What the library says while it runs, to standard error.
#pragma once

#include <string>
#include <string_view>

namespace pith {

enum class LogLevel { error, warn, info, debug };

// From the LOG setting; the last one set counts.
void set_log_level(std::string_view level);
// From then on as NCCL writes: host, process and thread first, to the file, or to standard output
// where the path is empty. False where the file cannot be opened.
bool log_like_nccl(const std::string& path);
// A line for that log alone, as it is, whatever the level.
void log_plain_nccl(const std::string& line);
bool logs(LogLevel level);
void log(LogLevel level, const std::string& message);

}  // namespace pith
