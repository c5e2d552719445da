// What the library says while it runs, to standard error.
#pragma once

#include <string>
#include <string_view>

namespace pith {

enum class LogLevel { error, warn, info, debug };

// From the LOG setting; the last one set counts.
void set_log_level(std::string_view level);
void log(LogLevel level, const std::string& message);

}  // namespace pith
