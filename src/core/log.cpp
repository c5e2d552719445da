#include "core/log.hpp"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <utility>

namespace pith {

namespace {

// A logger of its own, because the application may use spdlog's default logger. Never destroyed,
// because the library's threads may still log while the process exits.
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

// Set once by log_by(); see there.
struct OwnLines {
  LogLine line;
  spdlog::logger* logger;
};
std::atomic<const OwnLines*> own_lines{nullptr};

thread_local LogRoute route_here;

spdlog::level::level_enum level_of(LogLevel level) {
  constexpr spdlog::level::level_enum levels[] = {spdlog::level::err, spdlog::level::warn,
                                                  spdlog::level::info, spdlog::level::debug};
  return levels[static_cast<int>(level)];
}

}  // namespace

void set_log_level(std::string_view level) {
  logger().set_level(spdlog::level::from_str(std::string(level)));
}

bool log_by(LogLine line, const std::string& path) {
  spdlog::sink_ptr sink;
  try {
    if (path.empty()) {
      sink = std::make_shared<spdlog::sinks::stdout_sink_mt>();
    } else {
      sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path, true);
    }
  } catch (const spdlog::spdlog_ex&) {
    return false;
  }
  auto* made = new spdlog::logger("pith-lines", std::move(sink));  // never destroyed either
  made->set_pattern("%v");
  made->set_level(spdlog::level::trace);
  made->flush_on(spdlog::level::trace);
  own_lines.store(new OwnLines{line, made}, std::memory_order_release);
  return true;
}

void log_plain(const std::string& line) {
  const OwnLines* const own = own_lines.load(std::memory_order_acquire);
  if (own) own->logger->log(spdlog::level::critical, "{}", line);
}

void route_log_of_this_thread(LogRoute route) { route_here = std::move(route); }

bool logs(LogLevel level) { return logger().should_log(level_of(level)); }

void log(LogLevel level, const std::string& message, LogTopic topic) {
  const spdlog::level::level_enum as = level_of(level);
  if (route_here) {
    if (logger().should_log(as)) route_here(level, message, topic);
    return;
  }
  const OwnLines* const own = own_lines.load(std::memory_order_acquire);
  if (!own) return logger().log(as, "{}", message);
  if (!logger().should_log(as)) return;
  const std::string line = own->line(level, topic, message);
  if (!line.empty()) own->logger->log(as, "{}", line);
}

}  // namespace pith
