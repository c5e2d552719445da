#include "core/descriptor_limit.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
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

// Finds the lowest limit below which `wanted` numbers are free; the kernel assigns the lowest free
// number.
struct Walk {
  std::size_t limit = 0;
  std::size_t free = 0;
};
Walk walk(std::size_t wanted, std::size_t most) {
  Walk walk;
  for (; walk.limit < most && walk.free < wanted; ++walk.limit) {
    if (::fcntl(static_cast<int>(walk.limit), F_GETFD) < 0) ++walk.free;
  }
  return walk;
}

}  // namespace

bool make_descriptor_room(std::size_t more) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  rlimit both = limits();
  if (walk(more, both.rlim_cur).free >= more) return true;
  if (both.rlim_cur >= both.rlim_max) return false;
  const Walk found = walk(more + spare, both.rlim_max);
  const rlim_t before = both.rlim_cur;
  both.rlim_cur = std::max<rlim_t>(before, found.limit);
  if (both.rlim_cur == before || ::setrlimit(RLIMIT_NOFILE, &both) != 0) return false;
  log(LogLevel::info, fmt::format("raised the limit of open files (ulimit -n) from {} to {}; the "
                                  "hard limit is {}",
                                  before, both.rlim_cur, both.rlim_max));
  return found.free >= more;
}

void keep_descriptor_room(int fd) {
  const rlimit both = limits();
  if (both.rlim_cur >= both.rlim_max || static_cast<rlim_t>(fd) + ahead < both.rlim_cur) return;
  make_descriptor_room(ahead);
}

std::size_t descriptors_left(std::size_t most) { return walk(most, limits().rlim_max).free; }

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
