#include "core/log.hpp"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace pith {

namespace {

// A logger of our own: the application may have a "default" one with other ideas. Never destroyed,
// for the library's threads may still log while the process ends.
spdlog::logger& logger() {
  static spdlog::logger* const instance = [] {
    auto* made =
        new spdlog::logger("pith", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_pattern("pith %P %l: %v");
    made->set_level(spdlog::level::warn);
    return made;
  }();
  return *instance;
}

}  // namespace

void set_log_level(std::string_view level) {
  logger().set_level(spdlog::level::from_str(std::string(level)));
}

void log(LogLevel level, const std::string& message) {
  constexpr spdlog::level::level_enum levels[] = {spdlog::level::err, spdlog::level::warn,
                                                  spdlog::level::info, spdlog::level::debug};
  logger().log(levels[static_cast<int>(level)], "{}", message);
}

}  // namespace pith
