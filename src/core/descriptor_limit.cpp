#include "core/descriptor_limit.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <mutex>

#include "core/log.hpp"

namespace pith {

namespace {

// Extra descriptors for what other threads open at the same time.
constexpr std::size_t spare = 16;
// Threads that start together may all open descriptors at once: with room for 64, 16 threads that
// received three descriptors each lost some. Descriptor numbers do not rise with the limit.
constexpr std::size_t ahead = 512;

rlimit limits() {
  rlimit both{};
  ::getrlimit(RLIMIT_NOFILE, &both);
  return both;
}

bool is_free(std::size_t number) { return ::fcntl(static_cast<int>(number), F_GETFD) < 0; }

// How many numbers below `limit` are free, counting up to `wanted`; from the top, where they are:
// the kernel assigns the lowest free number.
std::size_t free_below(rlim_t limit, std::size_t wanted) {
  auto number = static_cast<std::size_t>(
      std::min<rlim_t>(limit, static_cast<rlim_t>(std::numeric_limits<int>::max())));
  std::size_t free = 0;
  while (number > 0 && free < wanted) free += is_free(--number) ? 1 : 0;
  return free;
}

// The lowest limit below which `wanted` numbers are free, or `most` if that is lower.
std::size_t lowest_limit(std::size_t wanted, std::size_t most) {
  std::size_t limit = 0;
  for (std::size_t free = 0; limit < most && free < wanted; ++limit) free += is_free(limit) ? 1 : 0;
  return limit;
}

}  // namespace

bool make_descriptor_room(std::size_t more) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  rlimit both = limits();
  if (free_below(both.rlim_cur, more) == more) return true;
  if (both.rlim_cur >= both.rlim_max) return false;
  const rlim_t before = both.rlim_cur;
  both.rlim_cur = std::max<rlim_t>(before, lowest_limit(more + spare, both.rlim_max));
  if (both.rlim_cur == before || ::setrlimit(RLIMIT_NOFILE, &both) != 0) return false;
  log(LogLevel::info, fmt::format("raised the limit of open files (ulimit -n) from {} to {}; the "
                                  "hard limit is {}",
                                  before, both.rlim_cur, both.rlim_max));
  return free_below(both.rlim_cur, more) == more;
}

void keep_descriptor_room(int fd) {
  const rlimit both = limits();
  if (both.rlim_cur >= both.rlim_max || static_cast<rlim_t>(fd) + ahead < both.rlim_cur) return;
  make_descriptor_room(ahead);
}

std::size_t descriptors_left(std::size_t most) { return free_below(limits().rlim_max, most); }

bool descriptors_are_used_up() {
  const int fd = open_with_room([] { return ::eventfd(0, EFD_CLOEXEC); });
  const bool used_up = fd < 0 && (errno == EMFILE || errno == ENFILE);
  if (fd >= 0) ::close(fd);
  return used_up;
}

std::size_t hard_descriptor_limit() { return limits().rlim_max; }

std::string descriptor_limit_text() {
  const rlimit both = limits();
  return fmt::format("the limit of open files is {} (ulimit -n; hard limit {})", both.rlim_cur,
                     both.rlim_max);
}

}  // namespace pith
