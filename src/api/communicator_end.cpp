// pith.h implemented: how communicators end.
#include <sched.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <thread>

#include "api/check.hpp"
#include "api/destroyed_handles.hpp"
#include "api/last_error.hpp"
#include "core/process_fence.hpp"

using namespace pith;
using namespace pith::api;

namespace {

// Of calls that have not seen that the handle is destroyed.
void await_calls(const pithComm& comm) {
  constexpr std::chrono::milliseconds surely_seen(1);  // where the kernel makes no fence for others
  if (!fence_all_threads()) std::this_thread::sleep_for(surely_seen);
  while (comm.in_call.load(std::memory_order_acquire)) {
    if (comm.communicator) comm.communicator->drain();
    sched_yield();
  }
}

// Destroys a handle and its communicator, after the calls in flight have ended.
Error destroy(pithComm_t comm) {
  if (!comm) return {};
  // In a forked child the threads to wait for, the locks they held and the rank are the parent's.
  if (comm->process != fork_generation()) return {};
  if (comm->destroyed.exchange(true)) return destroyed_before("pithCommDestroy");
  await_calls(*comm);
  Background ended;  // outside the lock, as it may take a while
  {
    const std::lock_guard lock(comm->guard);
    std::swap(ended, comm->background);
  }
  ended = Background();
  if (comm->communicator) comm->communicator->drain();
  keep_destroyed(comm);
  return {};
}

// Ends the work that still makes the communicator or a child of it first.
Error abort(pithComm_t comm) {
  if (!comm || comm->process != fork_generation()) return {};
  if (comm->destroyed) return destroyed_before("pithCommAbort");
  std::shared_ptr<Communicator> communicator;
  bool promised = false;  // by a group, whose end frees the handle
  {
    const std::lock_guard lock(comm->guard);
    if (comm->making) comm->making->cancel();
    communicator = comm->communicator;
    promised = comm->being_made && !comm->background;
  }
  if (communicator) {
    communicator->children().cancel();
    communicator->abort();
  }
  return promised ? Error() : destroy(comm);
}

}  // namespace

pithResult_t pithCommFinalize(pithComm_t comm) {
  return guarded(comm, [&] {
    if (!comm) return Error();
    constexpr const char* function = "pithCommFinalize";
    if (Error error = check_communicator(function, comm)) return error;
    if (Error error = check_not_in_group(function, *comm)) return error;
    comm->communicator->drain();
    comm->finalized = true;
    return Error();
  });
}

pithResult_t pithCommDestroy(pithComm_t comm) {
  return guarded([&]() -> Error {
    constexpr const char* function = "pithCommDestroy";
    const bool is_alive = comm && !check_handle(function, comm);
    if (Error error = is_alive ? check_not_in_group(function, *comm) : Error()) return error;
    return destroy(comm);
  });
}

pithResult_t pithCommAbort(pithComm_t comm) {
  return guarded([&] { return abort(comm); });
}
