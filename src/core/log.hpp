// What the library says while it runs, to standard error.
#pragma once

#include <string>
#include <string_view>

namespace pith {

enum class LogLevel { error, warn, info, debug };
// What a line is about, in the words by which NCCL's users choose; `all`: whatever they chose.
enum class LogTopic { all, init, env, bootstrap, p2p, alloc, graph };

// From the LOG setting; the last one set counts.
void set_log_level(std::string_view level);
bool logs(LogLevel level);
void log(LogLevel level, const std::string& message, LogTopic topic = LogTopic::init);

// A library on top may have lines of its own.
using LogLine = std::string (*)(LogLevel level, LogTopic topic, const std::string& message);
// From then on lines are what `line` makes of them, none where that is empty: in the file, which
// begins empty, or on standard output where the path is empty. False where the file cannot be
// opened.
bool log_by(LogLine line, const std::string& path);
// A line for that log alone, as it is, whatever the level.
void log_plain(const std::string& line);

}  // namespace pith
