#include "core/process_fence.hpp"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace pith {

namespace {

bool membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0) == 0; }

}  // namespace

bool fence_all_threads() {
  static const bool registered = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return registered && membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

}  // namespace pith
