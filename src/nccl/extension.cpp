#include "nccl/extension.hpp"

#include "api/group.hpp"

namespace pith::nccl {

Extension* find_extension(pithComm_t comm) {
  const std::lock_guard lock(comm->guard);
  return static_cast<Extension*>(comm->attached.get());
}

Extension& extension_of(pithComm_t comm) {
  const std::lock_guard lock(comm->guard);
  if (!comm->attached) {
    comm->attached = std::make_shared<Extension>();
    comm->has_attached.store(true, std::memory_order_release);
  }
  return *static_cast<Extension*>(comm->attached.get());
}

}  // namespace pith::nccl
