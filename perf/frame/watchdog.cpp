#include "frame/watchdog.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstddef>

namespace pith_perf {
namespace {

constexpr unsigned others_wait_s = 5;

std::atomic<unsigned> limit_s{0};
std::atomic<bool> line_open{false};
// Constant once the alarm is set, for the signal handler.
char message[64];
std::size_t message_bytes = 0;

void end_process(int) {
  if (line_open && write(STDOUT_FILENO, "\n", 1) < 0) _exit(4);
  if (write(STDERR_FILENO, message, message_bytes) < 0) _exit(4);
  _exit(3);
}

}  // namespace

void Watchdog::start(int seconds, int process) {
  if (seconds == 0) return;
  message_bytes = fmt::format_to_n(message, sizeof(message),
                                   "Test timeout: --timeout, {} s, was reached\n", seconds)
                      .size;
  limit_s = static_cast<unsigned>(seconds) + (process == 0 ? 0 : others_wait_s);
  std::signal(SIGALRM, end_process);
  rearm();
}

void Watchdog::line_is_open(bool open) { line_open = open; }

void Watchdog::rearm() {
  if (limit_s != 0) alarm(limit_s);
}

}  // namespace pith_perf
