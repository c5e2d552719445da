#include "frame/watchdog.hpp"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>

namespace pith_perf {
namespace {

std::atomic<unsigned> limit_s{0};

void end_process(int) {
  constexpr char text[] = "Test timeout: no progress within --timeout\n";
  if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0) _exit(4);
  _exit(3);
}

}  // namespace

void Watchdog::start(int seconds) {
  limit_s = static_cast<unsigned>(seconds);
  std::signal(SIGALRM, end_process);
  rearm();
}

void Watchdog::rearm() {
  if (limit_s != 0) alarm(limit_s);
}

}  // namespace pith_perf
