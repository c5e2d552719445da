#include "transport/locked_memory.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>

namespace pith {

Error not_locked(const std::string& what, int error) {
  rlimit limit{};
  const bool known = getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  if (error != ENOMEM || !known) return system_error(what, error);
  return system_error(
      fmt::format("{}, where {} KiB may be locked (ulimit -l)", what, limit.rlim_cur / 1024),
      error);
}

Error try_to_lock() {
  void* const memory =
      mmap(nullptr, locked_bytes_least, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return system_error("map memory", errno);
  // Without any limit at all the system says EPERM.
  const int error = mlock(memory, locked_bytes_least) == 0 ? 0 : ENOMEM;
  munmap(memory, locked_bytes_least);
  if (error == 0) return {};
  return not_locked(fmt::format("lock {} KiB for RDMA", locked_bytes_least / 1024), error);
}

}  // namespace pith
