// NCCL's functions without a communicator, and registrations, exported.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "api/check.hpp"
#include "core/heap.hpp"
#include "cuda/physical_memory.hpp"
#include "nccl/call.hpp"
#include "nccl/device_context.hpp"
#include "nccl/errors.hpp"
#include "nccl/exported.hpp"
#include "nccl/extension.hpp"
#include "streams/stream_memory.hpp"

namespace pith::nccl {

namespace {

// As NCCL's, allocations start and end at page boundaries of the host or the device.
constexpr std::size_t host_page = Heap::page_bytes;
constexpr std::size_t device_page = Heap::huge_bytes;

std::size_t whole(std::size_t bytes, std::size_t page) {
  if (bytes > std::numeric_limits<std::size_t>::max() - page) return bytes;  // will be refused
  return (std::max<std::size_t>(bytes, 1) + page - 1) / page * page;
}

Error allocate(void** pointer, std::size_t bytes) {
  if (Error error = api::check_pointer("ncclMemAlloc", "pointer", pointer)) return error;
  Place place = place_of_this_thread();
  // Callers pass the memory to kernels, so it is a device's if there is one, even at the first
  // call.
  if (!place.has_driver && start_driver()) place = place_of_this_thread();
  if (place.has_driver && !place.context) place = place_of(0);  // a new thread: CUDA's default
  if (!place.has_driver) {
    const pithResult_t result = pithMemAlloc(pointer, whole(bytes, host_page));
    return result == pithSuccess ? Error() : Error(static_cast<Code>(result), api::last_error());
  }
  if (!place.context) return {Code::cuda, "ncclMemAlloc: device 0 gives no context"};
  const CurrentContext current(place.context);
  const cuda::Driver& driver = *cuda::known_driver();
  const cuda::RelaxedCapture relaxed(driver);
  const std::size_t rounded = whole(bytes, device_page);
  // Exportable as NCCL's: other processes can map it even if the driver refuses IPC handles.
  cuda::CUdeviceptr address = cuda::allocate_exportable(driver, place.device, rounded);
  const cuda::CUresult result = address != 0 ? cuda::kSuccess : driver.mem_alloc(&address, rounded);
  if (result != cuda::kSuccess) {
    return {Code::cuda, "ncclMemAlloc: cuMemAlloc: " + driver.describe(result)};
  }
  *pointer = reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
  return {};
}

Error release(void* pointer) {
  look_for_device_memory();
  const Expected<bool> on_device = pointer ? is_device_memory(pointer) : Expected<bool>(false);
  if (!on_device) return on_device.error();
  if (*on_device) {
    const cuda::Driver& driver = *cuda::known_driver();
    Place place = place_of_this_thread();
    if (!place.context) place = place_of(0);
    const CurrentContext current(place.context);
    const cuda::RelaxedCapture relaxed(driver);
    const cuda::CUdeviceptr address = cuda::address_of(pointer);
    const bool mapped = cuda::is_mapped_by_hand(driver, address);
    // As in NCCL, the caller guarantees that work on the memory has ended. cuMemFree would wait for
    // all work of the context.
    const cuda::CUresult result =
        mapped ? cuda::free_exportable(driver, address) : driver.mem_free(address);
    if (result == cuda::kSuccess) return {};
    if (result == cuda::kErrorInvalidValue) {
      return {Code::invalid_argument,
              fmt::format("ncclMemFree: ptr is {}, which was not allocated by ncclMemAlloc, or has "
                          "been freed",
                          pointer)};
    }
    return {Code::cuda,
            fmt::format("ncclMemFree: {} of {}: {}", mapped ? "cuMemUnmap" : "cuMemFree", pointer,
                        driver.describe(result))};
  }
  const pithResult_t result = pithMemFree(pointer);
  return result == pithSuccess ? Error() : Error(static_cast<Code>(result), api::last_error());
}

// There is no symmetric memory; as in NCCL since 2.29, that yields success and a NULL window.
// Callers that register for speed alone, as PyTorch does for its memory pools, keep NULL and give
// it back; callers that need symmetric memory check for NULL, and would pass any other window to
// kernels. Other windows are plain registrations that record their memory, as in 2.28.
Error add_window(pithComm_t comm, void* buffer, std::size_t bytes, ncclWindow_t* window,
                 int flags) {
  constexpr const char* function = "ncclCommWindowRegister";
  Error error = api::check_communicator(function, comm);
  if (!error) error = api::check_pointer(function, "window", window);
  if (!error && bytes > 0) error = api::check_pointer(function, "buffer", buffer);
  if (error) return error;
  if ((flags & NCCL_WIN_COLL_SYMMETRIC) != 0) {
    *window = nullptr;
    return {};
  }
  const std::shared_ptr<Extension> extension = extension_of(comm);
  const std::lock_guard lock(extension->guard);
  auto& windows = extension->windows;
  windows.push_back(std::make_unique<ncclWindow_vidmem>(ncclWindow_vidmem{comm, buffer, bytes}));
  *window = windows.back().get();
  return {};
}

// Also allowed on a broken communicator: callers clean up before they abort.
Error remove_window(pithComm_t comm, ncclWindow_t window) {
  if (!window) return {};
  if (Error error = api::check_handle("ncclCommWindowDeregister", comm)) return error;
  const std::shared_ptr<Extension> extension = extension_of(comm);
  const std::lock_guard lock(extension->guard);
  auto& windows = extension->windows;
  const auto is_it = [window](const auto& one) { return one.get() == window; };
  if (std::erase_if(windows, is_it) > 0) return {};
  return {Code::invalid_argument,
          "ncclCommWindowDeregister: window is not one of this communicator's"};
}

}  // namespace

}  // namespace pith::nccl

using namespace pith::nccl;

NCCL_EXPORT(ncclResult_t, ncclGetVersion, (int* version)) {
  return guarded([&]() -> pith::Error {
    if (auto error = pith::api::check_pointer("ncclGetVersion", "version", version)) return error;
    *version = NCCL_VERSION_CODE;
    return {};
  });
}

// Callers compare these texts.
NCCL_EXPORT(const char*, ncclGetErrorString, (ncclResult_t result)) {
  switch (static_cast<int>(result)) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
      return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

NCCL_EXPORT(const char*, ncclGetLastError, (ncclComm_t)) { return last_error(); }

NCCL_EXPORT(void, ncclResetDebugInit, (void)) {}

NCCL_EXPORT(ncclResult_t, ncclMemAlloc, (void** pointer, size_t size)) {
  return guarded([&] { return allocate(pointer, size); });
}

NCCL_EXPORT(ncclResult_t, ncclMemFree, (void* pointer)) {
  return guarded([&] { return release(pointer); });
}

NCCL_EXPORT(ncclResult_t, ncclCommRegister,
            (ncclComm_t comm, void* buffer, size_t size, void** handle)) {
  return answer(pithCommRegister(ours(comm), buffer, size, handle));
}

NCCL_EXPORT(ncclResult_t, ncclCommDeregister, (ncclComm_t comm, void* handle)) {
  return answer(pithCommDeregister(ours(comm), handle));
}

NCCL_EXPORT(ncclResult_t, ncclCommWindowRegister,
            (ncclComm_t comm, void* buffer, size_t size, ncclWindow_t* window, int flags)) {
  return guarded([&] { return add_window(ours(comm), buffer, size, window, flags); });
}

NCCL_EXPORT(ncclResult_t, ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t window)) {
  return guarded([&] { return remove_window(ours(comm), window); });
}
