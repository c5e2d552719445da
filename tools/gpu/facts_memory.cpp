// Memory not allocated by cuMemAlloc: mapped by virtual memory management, as PyTorch's expandable
// segments and NCCL's own allocations, or from a pool.
#include <unistd.h>

#include "cuda/physical_memory.hpp"
#include "tools/gpu/driver_extra.hpp"

namespace pith::facts {

using namespace cuda;

namespace {

struct DeviceFact {
  CUdevice_attribute attribute;
  const char* name;
};
constexpr DeviceFact device_facts[] = {
    {102, "virtual memory management"},
    {103, "memory handles as file descriptors"},
    {128, "memory handles of fabrics"},
    {116, "GPUDirect RDMA"},
    {110, "GPUDirect RDMA with virtual memory management"},
    {124, "dma-buf"},
    {125, "events of other processes"},
    {115, "memory pools"},
    {119, "handle types of memory pools"},
};

constexpr const char* name_of(int handles) {
  return handles == kHandleNone         ? "no handle"
         : handles == kHandleDescriptor ? "descriptor"
                                        : "fabric";
}

template <class Value>
std::string attribute_of(CUpointer_attribute which, CUdeviceptr address) {
  Value value{};
  const CUresult result = cu().pointer_attribute(&value, which, address);
  if (result != kSuccess) return describe(result);
  if constexpr (std::is_pointer_v<Value>)
    return value ? "set" : "null";
  else
    return std::to_string(value);
}

std::string context_of(const Gpu& gpu, CUdeviceptr address) {
  CUcontext context = nullptr;
  const CUresult result = cu().pointer_attribute(&context, kPointerContext, address);
  if (result != kSuccess) return describe(result);
  return context == gpu.context ? "the current one" : context ? "another one" : "null";
}

std::string range_of(CUpointer_attribute start_attribute, CUpointer_attribute size_attribute,
                     CUdeviceptr address) {
  CUdeviceptr start = 0;
  std::size_t size = 0;
  CUresult result = cu().pointer_attribute(&start, start_attribute, address);
  if (result == kSuccess) result = cu().pointer_attribute(&size, size_attribute, address);
  if (result != kSuccess) return describe(result);
  return std::to_string(size >> 10) + " KiB from " + std::to_string((address - start) >> 10) +
         " KiB before";
}

std::string address_range_of(CUdeviceptr address) {
  CUdeviceptr start = 0;
  std::size_t size = 0;
  const CUresult result = cu().mem_address_range(&start, &size, address);
  if (result != kSuccess) return describe(result);
  return std::to_string(size >> 10) + " KiB from " + std::to_string((address - start) >> 10) +
         " KiB before";
}

std::string ipc_of(CUdeviceptr address) {
  CUipcMemHandle handle;
  if (!cu().ipc_get_handle) return "not there";
  return describe(cu().ipc_get_handle(&handle, address));
}

std::string dma_buf_of(const Extra& extra, CUdeviceptr address, std::size_t bytes) {
  if (!extra.cuMemGetHandleForAddressRange) return "not there";
  int file = -1;
  const CUresult result =
      extra.cuMemGetHandleForAddressRange(&file, address, bytes, kRangeDmaBuf, 0);
  if (file >= 0) close(file);
  return describe(result);
}

std::string owner_of(CUdeviceptr address) {
  if (!cu().mem_retain || !cu().mem_release) return "not there";
  CUmemGenericAllocationHandle handle = 0;
  void* pointer = reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
  const CUresult result = cu().mem_retain(&handle, pointer);
  if (result == kSuccess) cu().mem_release(handle);
  return describe(result);
}

// Everything that Pith asks, and could ask, about a pointer.
void tell_pointer(const Gpu& gpu, const Extra& extra, const std::string& of, CUdeviceptr address,
                  std::size_t bytes) {
  const auto tell = [&of](const char* what, const std::string& value) {
    say((of + ", " + what).c_str(), "%s", value.c_str());
  };
  stage("pointer attributes of " + of);
  tell("type", attribute_of<unsigned>(kPointerMemoryType, address));
  tell("context", context_of(gpu, address));
  tell("device", attribute_of<int>(kPointerDeviceOrdinal, address));
  tell("buffer id", attribute_of<unsigned long long>(kPointerBufferId, address));
  tell("good for cuIpcGetMemHandle", attribute_of<int>(10, address));
  tell("cuIpcGetMemHandle", ipc_of(address));
  tell("allowed handle types", attribute_of<unsigned long long>(14, address));
  tell("good for GPUDirect RDMA", attribute_of<int>(15, address));
  tell("a dma-buf of it", dma_buf_of(extra, address, bytes));
  tell("its pool", attribute_of<void*>(17, address));
  tell("cuMemRetainAllocationHandle", owner_of(address));
  tell("range", range_of(kPointerRangeStart, kPointerRangeSize, address));
  tell("mapping", range_of(19, 18, address));
  tell("cuMemGetAddressRange", address_range_of(address));
}

CUmemAllocationProp properties_of(int handles) {
  CUmemAllocationProp properties{};
  properties.type = kMemoryPinned;
  properties.requestedHandleTypes = handles;
  properties.location = {kLocationDevice, 0};
  return properties;
}

std::size_t tell_granularity(int handles) {
  const CUmemAllocationProp properties = properties_of(handles);
  std::size_t least = 0, better = 0;
  CUresult result = cu().mem_granularity(&least, &properties, kGranularityMinimum);
  if (result == kSuccess) {
    result = cu().mem_granularity(&better, &properties, kGranularityRecommended);
  }
  const std::string name = std::string("granularity, ") + name_of(handles);
  say(name.c_str(), "%s, least %zu KiB, recommended %zu KiB", describe(result).c_str(), least >> 10,
      better >> 10);
  return result == kSuccess ? least : 0;
}

// Two adjacent allocations, as in expandable segments; the pointer is in the second.
void tell_mapped(const Gpu& gpu, const Extra& extra, int handles) {
  const std::size_t part = tell_granularity(handles);
  if (part == 0) return;
  const std::string name = std::string("mapped memory, ") + name_of(handles);
  const CUmemAllocationProp properties = properties_of(handles);
  CUdeviceptr start = 0;
  must(cu().mem_reserve(&start, 4 * part, 0, 0, 0), "cuMemAddressReserve");
  CUmemGenericAllocationHandle handle = 0;
  for (std::size_t i = 0; i < 2; ++i) {
    stage("cuMemCreate, " + name);
    const CUresult made = cu().mem_create(&handle, part, &properties, 0);
    if (made != kSuccess) {
      say((name + ", cuMemCreate").c_str(), "%s", describe(made).c_str());
      return;
    }
    must(cu().mem_map(start + i * part, part, 0, handle, 0), "cuMemMap");
  }
  const CUmemAccessDesc access{{kLocationDevice, 0}, kAccessReadWrite};
  must(cu().mem_set_access(start, 2 * part, &access, 1), "cuMemSetAccess");
  tell_pointer(gpu, extra, name, start + part, part);
  if (handles == kHandleNone || !cu().mem_export) return;
  union {
    int file;
    char fabric[64];
  } exported{};
  const CUresult result = cu().mem_export(&exported, handle, handles, 0);
  say((name + ", cuMemExportToShareableHandle").c_str(), "%s", describe(result).c_str());
  if (result == kSuccess && handles == kHandleDescriptor) close(exported.file);
}

// Whether unmapping and freeing block while a stream waits for the host.
void tell_taking_away(const Gpu& gpu) {
  const CUmemAllocationProp properties = properties_of(kHandleNone);
  std::size_t part = 0;
  cu().mem_granularity(&part, &properties, kGranularityMinimum);
  if (part == 0 || !cu().mem_unmap || !cu().mem_release) return;
  CUdeviceptr start = 0;
  CUmemGenericAllocationHandle handle = 0;
  const CUmemAccessDesc access{{kLocationDevice, 0}, kAccessReadWrite};
  const Kernels kernels;
  Held held(Holder::wait, kernels);
  const auto tell = [&](const char* name, const std::function<CUresult()>& call) {
    stage(name);
    held.hold();
    const Attempt attempt(gpu.context, call);
    const bool returned = attempt.ended(150);
    held.let_go();
    const bool ended = attempt.ended(1000);
    say(name, "%s, %s", returned ? "returns" : "WAITS for a stream that waits for the host",
        ended ? attempt.result().c_str() : "and longer");
  };
  must(cu().mem_reserve(&start, part, 0, 0, 0), "cuMemAddressReserve");
  tell("cuMemCreate", [&] { return cu().mem_create(&handle, part, &properties, 0); });
  tell("cuMemMap", [&] { return cu().mem_map(start, part, 0, handle, 0); });
  tell("cuMemSetAccess", [&] { return cu().mem_set_access(start, part, &access, 1); });
  tell("cuMemUnmap", [&] { return cu().mem_unmap(start, part); });
  tell("cuMemRelease", [&] { return cu().mem_release(handle); });
}

}  // namespace

void probe_memory() {
  const Gpu gpu;
  const Extra extra;
  for (const DeviceFact& fact : device_facts) {
    int value = -1;
    const CUresult result = cu().device_attribute(&value, fact.attribute, 0);
    say(fact.name, "%s",
        result == kSuccess ? std::to_string(value).c_str() : describe(result).c_str());
  }
  constexpr std::size_t bytes = std::size_t{2} << 20;
  CUdeviceptr memory = 0;
  must(cu().mem_alloc(&memory, bytes), "cuMemAlloc");
  tell_pointer(gpu, extra, "cuMemAlloc's memory", memory, bytes);
  if (!maps_memory(cu())) {
    say("mapped memory", "not there");
    return;
  }
  for (const int handles : {kHandleNone, kHandleDescriptor, kHandleFabric}) {
    tell_mapped(gpu, extra, handles);
  }
  tell_taking_away(gpu);
}

void probe_pools() {
  const Gpu gpu;
  const Extra extra;
  const CUstream stream = new_stream();
  constexpr std::size_t bytes = std::size_t{1} << 20;
  CUdeviceptr memory = 0;
  if (cu().mem_alloc_async) {
    must(cu().mem_alloc_async(&memory, bytes, stream), "cuMemAllocAsync");
    must(cu().stream_synchronize(stream), "cuStreamSynchronize");
    tell_pointer(gpu, extra, "the usual pool's memory", memory, bytes);
  } else {
    say("cuMemAllocAsync", "not there");
  }
  if (!extra.cuMemPoolCreate || !extra.cuMemAllocFromPoolAsync) {
    say("cuMemPoolCreate", "not there");
    return;
  }
  CUmemPoolProps properties{};
  properties.allocType = kMemoryPinned;
  properties.handleTypes = kHandleDescriptor;
  properties.location = {kLocationDevice, 0};
  CUmemoryPool pool = nullptr;
  must(extra.cuMemPoolCreate(&pool, &properties), "cuMemPoolCreate");
  must(extra.cuMemAllocFromPoolAsync(&memory, bytes, pool, stream), "cuMemAllocFromPoolAsync");
  must(cu().stream_synchronize(stream), "cuStreamSynchronize");
  tell_pointer(gpu, extra, "memory of a pool for descriptors", memory, bytes);
}

}  // namespace pith::facts
