#include "nccl/extension.hpp"

#include "api/comm_handle.hpp"
#include "api/completion.hpp"

namespace pith::nccl {

namespace {

// A revocation by the user is no error; a child's failure is.
Error state_of_revoked(const pithComm& comm, const Extension& extension, const Error& state) {
  if (state.code() == Code::in_progress) return state;
  const std::lock_guard lock(comm.guard);
  return extension.has_descendants ? comm.failure : Error();
}

Error state_there(Extension& extension) {
  const auto there = extension.other_comm();
  ncclResult_t state = there ? there->async_error() : ncclSuccess;
  const auto plan = extension.plan();
  if (state == ncclSuccess && plan) state = plan->async_error();
  if (state == ncclSuccess) return {};
  return {static_cast<Code>(state), "PITH_NCCL_FALLBACK: the other NCCL's communicator has failed"};
}

}  // namespace

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

Error async_error_of(pithComm_t comm) {
  Error state = api::async_error(comm);
  const std::shared_ptr<Extension> extension = find_extension(comm);
  if (!extension) return state;
  if (extension->revoked) return state_of_revoked(*comm, *extension, state);
  return state ? state : state_there(*extension);
}

}  // namespace pith::nccl
