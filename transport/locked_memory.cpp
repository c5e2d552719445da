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

Error try_to_lock(std::size_t bytes) {
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return system_error("map memory", errno);
  // No page is touched. Where nothing may be locked the system says EPERM.
  const bool locked = mlock2(memory, bytes, MLOCK_ONFAULT) == 0;
  munmap(memory, bytes);
  if (locked) return {};
  return not_locked(fmt::format("lock {} KiB for RDMA", bytes / 1024), ENOMEM);
}

}  // namespace pith
