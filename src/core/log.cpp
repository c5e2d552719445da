#include "core/log.hpp"

#include <fmt/format.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

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

// Set once, before anything is logged so.
std::atomic<spdlog::logger*> nccl_logger{nullptr};

spdlog::level::level_enum level_of(LogLevel level) {
  constexpr spdlog::level::level_enum levels[] = {spdlog::level::err, spdlog::level::warn,
                                                  spdlog::level::info, spdlog::level::debug};
  return levels[static_cast<int>(level)];
}

// Device 0: the library's own threads belong to none.
std::string like_nccl(LogLevel level, const std::string& message) {
  constexpr const char* names[] = {"WARN", "WARN", "INFO", "TRACE"};
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  *std::find(host, host + sizeof host - 1, '.') = '\0';
  return fmt::format("{}:{}:{} [0] NCCL {} {}", host, getpid(), syscall(SYS_gettid),
                     names[static_cast<int>(level)], message);
}

}  // namespace

void set_log_level(std::string_view level) {
  logger().set_level(spdlog::level::from_str(std::string(level)));
}

bool log_like_nccl(const std::string& path) {
  spdlog::sink_ptr sink;
  try {
    if (path.empty()) {
      sink = std::make_shared<spdlog::sinks::stdout_sink_mt>();
    } else {
      sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
    }
  } catch (const spdlog::spdlog_ex&) {
    return false;
  }
  auto* made = new spdlog::logger("pith-nccl", std::move(sink));  // stays, as the other one does
  made->set_pattern("%v");
  made->set_level(spdlog::level::trace);
  made->flush_on(spdlog::level::trace);
  nccl_logger.store(made, std::memory_order_release);
  return true;
}

void log_plain_nccl(const std::string& line) {
  spdlog::logger* const nccl = nccl_logger.load(std::memory_order_acquire);
  if (nccl) nccl->log(spdlog::level::critical, "{}", line);
}

bool logs(LogLevel level) { return logger().should_log(level_of(level)); }

void log(LogLevel level, const std::string& message) {
  const spdlog::level::level_enum as = level_of(level);
  spdlog::logger* const nccl = nccl_logger.load(std::memory_order_acquire);
  if (!nccl) return logger().log(as, "{}", message);
  if (logger().should_log(as)) nccl->log(as, "{}", like_nccl(level, message));
}

}  // namespace pith
