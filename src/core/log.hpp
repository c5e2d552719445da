// The library's log, on standard error unless log_by() has been called.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace pith {

enum class LogLevel { error, warn, info, debug };
// The subsystem of a line, by which NCCL's users select lines; `all`: always selected.
enum class LogTopic { all, init, env, bootstrap, p2p, alloc, graph };

// From the setting PITH_LOG, for the whole process; the last call counts.
void set_log_level(std::string_view level);
bool logs(LogLevel level);
void log(LogLevel level, const std::string& message, LogTopic topic = LogTopic::init);

// From now on what the calling thread logs goes to `route`, which has another thread log it.
using LogRoute = std::function<void(LogLevel level, const std::string& message, LogTopic topic)>;
void route_log_of_this_thread(LogRoute route);

// Formats a line for log_by(). For a library on top, whose log has another format.
using LogLine = std::string (*)(LogLevel level, LogTopic topic, const std::string& message);
// From now on `line` formats every line; an empty result drops the line. Lines go to the file
// `path`, which is truncated first, or to standard output if `path` is empty. False if the file
// cannot be opened.
bool log_by(LogLine line, const std::string& path);
// Writes a line as it is, at any level, if log_by() has been called.
void log_plain(const std::string& line);

}  // namespace pith
