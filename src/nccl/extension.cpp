#include "nccl/extension.hpp"

#include "api/group.hpp"

namespace pith::nccl {

std::shared_ptr<Extension> find_extension(pithComm_t comm) {
  const std::lock_guard lock(comm->guard);
  return std::static_pointer_cast<Extension>(comm->attached);
}

std::shared_ptr<Extension> extension_of(pithComm_t comm) {
  const std::lock_guard lock(comm->guard);
  if (!comm->attached) {
    comm->attached = std::make_shared<Extension>();
    comm->has_attached.store(true, std::memory_order_release);
  }
  return std::static_pointer_cast<Extension>(comm->attached);
}

}  // namespace pith::nccl
