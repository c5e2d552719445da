// Memory of a device's default pool: of no context, reached by the devices that the pool grants it
// to, and by no other process. It is there when it is asked for, and goes in the stream's order.
#include "tests/cuda_stub/arena.hpp"
#include "tests/cuda_stub/internal.hpp"

namespace pith::cuda {

namespace {

// State::mutex held.
CUmemoryPool pool_of(CUdevice device) {
  static auto* const pools = new std::map<CUdevice, CUmemPoolHandle_st>;
  const auto [place, is_new] = pools->try_emplace(device);
  if (is_new) {
    place->second.device = device;
    place->second.reached_by = {device};
  }
  return &place->second;
}

}  // namespace

extern "C" {

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  std::lock_guard lock(state().mutex);
  if (device < 0 || static_cast<std::size_t>(device) >= state().contexts.size()) {
    return kErrorInvalidDevice;
  }
  *pool = pool_of(device);
  return kSuccess;
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* access, std::size_t count) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  std::lock_guard lock(state().mutex);
  for (std::size_t i = 0; i < count; ++i) {
    const CUdevice device = access[i].location.id;
    if (access[i].location.type != kLocationDevice) return kErrorInvalidValue;
    // Its own device cannot be kept out.
    if (access[i].flags == kAccessNone && device == pool->device) return kErrorInvalidValue;
    if (access[i].flags == kAccessReadWrite) {
      pool->reached_by.insert(device);
    } else {
      pool->reached_by.erase(device);
    }
  }
  return kSuccess;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool pool, CUmemLocation* location) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  std::lock_guard lock(state().mutex);
  if (location->type != kLocationDevice) return kErrorInvalidValue;
  *flags = pool->reached_by.contains(location->id) ? kAccessReadWrite : kAccessNone;
  return kSuccess;
}

CUresult cuMemAllocAsync(CUdeviceptr* address, std::size_t bytes, CUstream stream) {
  if (CUresult r = enter(Call::alloc); r != kSuccess) return r;
  if (address == nullptr || bytes == 0) return kErrorInvalidValue;
  CUresult result = kSuccess;
  const CUcontext context = context_of(stream, result);
  if (context == nullptr) return result;
  std::uint64_t id = 0;
  {
    std::lock_guard lock(state().mutex);
    id = state().next_id++;
  }
  void* const memory = Arena::process().take(bytes, id);
  if (memory == nullptr) return kErrorOutOfMemory;
  fill_uninitialised(memory, bytes);
  *address = reinterpret_cast<std::uintptr_t>(memory);
  Range range{bytes, kMemoryTypeDevice, false, false, context, id, true};
  std::lock_guard lock(state().mutex);
  range.pool = pool_of(context->device);
  state().ranges[static_cast<std::uintptr_t>(*address)] = range;
  return kSuccess;
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  if (CUresult r = enter(Call::free); r != kSuccess) return r;
  {
    std::lock_guard lock(state().mutex);
    std::uintptr_t base = 0;
    const Range* const range = range_at(address, base);
    if (range == nullptr || base != address || range->pool == nullptr) return kErrorInvalidValue;
  }
  return submit(stream, [address] {
    {
      std::lock_guard lock(state().mutex);
      state().ranges.erase(static_cast<std::uintptr_t>(address));
    }
    Arena::process().give(reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)));
  });
}

}  // extern "C"

}  // namespace pith::cuda
