// What the driver reports about memory that is mapped by hand; cuda/physical_memory relies on it.
#include <unistd.h>

#include "cuda/physical_memory.hpp"
#include "tools/gpu/driver_facts.hpp"

namespace pith::facts {

using namespace cuda;

namespace {

CUmemGenericAllocationHandle create(std::size_t bytes) {
  CUmemAllocationProp prop{};
  prop.type = kMemoryPinned;
  prop.requestedHandleTypes = kHandleDescriptor;
  prop.location = {kLocationDevice, 0};
  CUmemGenericAllocationHandle handle = 0;
  must(cu().mem_create(&handle, bytes, &prop, 0), "cuMemCreate");
  return handle;
}

// Not accessible by any device yet.
void map_new(CUdeviceptr address, std::size_t bytes) {
  const auto handle = create(bytes);
  must(cu().mem_map(address, bytes, 0, handle, 0), "cuMemMap");
  must(cu().mem_release(handle), "cuMemRelease");
}

std::string number(CUdeviceptr address, CUpointer_attribute name) {
  std::uint64_t value = 0;
  const CUresult result = cu().pointer_attribute(&value, name, address);
  return result == kSuccess ? std::to_string(value) : describe(result);
}

void tell_numbers(const char* where, CUdeviceptr address) {
  say(where, "buffer id %s, block id %s, handle types %s",
      number(address, kPointerBufferId).c_str(), number(address, kPointerMemoryBlockId).c_str(),
      number(address, kPointerHandleTypes).c_str());
}

void tell_range(CUdeviceptr base, std::size_t page, CUdeviceptr address) {
  CUdeviceptr start = 0;
  std::size_t bytes = 0;
  const CUresult result = cu().mem_address_range(&start, &bytes, address);
  say("cuMemGetAddressRange in the second mapping", "%s, begins at page %lld, %zu pages",
      describe(result).c_str(), static_cast<long long>(start - base) / static_cast<long long>(page),
      bytes / page);
}

void tell_access(CUdeviceptr address, const char* when) {
  say(when, "%s", is_mapped_for(cu(), address, 0) ? "read and write" : "none");
}

void tell_handles(CUdeviceptr address) {
  CUmemGenericAllocationHandle handle = 0;
  CUresult result = cu().mem_retain(&handle, reinterpret_cast<void*>(address));
  say("a handle of it", "%s", describe(result).c_str());
  if (result != kSuccess) return;
  int fd = -1;
  result = cu().mem_export(&fd, handle, kHandleDescriptor, 0);
  say("a descriptor of it", "%s", describe(result).c_str());
  if (fd >= 0) close(fd);
  cu().mem_release(handle);
}

}  // namespace

void probe_mapped() {
  const Gpu gpu;
  if (!maps_memory(cu())) return say("cuMemMap", "skipped: this driver has none");
  constexpr std::size_t page = std::size_t{2} << 20;
  CUdeviceptr base = 0;
  must(cu().mem_reserve(&base, 4 * page, 0, 0, 0), "cuMemAddressReserve");
  map_new(base, page);
  map_new(base + page, 2 * page);
  const CUdeviceptr inside = base + 2 * page;
  say("its context", "%s", number(inside, kPointerContext).c_str());
  say("its pool", "%s", number(inside, kPointerPool).c_str());
  tell_numbers("the first mapping", base);
  tell_numbers("the second mapping", inside);
  say("the second one's range", "%s bytes of 8388608", number(inside, kPointerRangeSize).c_str());
  tell_range(base, page, inside);
  tell_access(inside, "access before cuMemSetAccess");
  const CUmemAccessDesc access{{kLocationDevice, 0}, kAccessReadWrite};
  must(cu().mem_set_access(base, 3 * page, &access, 1), "cuMemSetAccess across mappings");
  tell_access(inside, "access after it");
  tell_handles(inside);
  say("cuMemUnmap of both at once", "%s", describe(cu().mem_unmap(base, 3 * page)).c_str());
  if (number(base, kPointerMapped) != "0") {
    must(cu().mem_unmap(base, page), "cuMemUnmap");
    must(cu().mem_unmap(base + page, 2 * page), "cuMemUnmap");
  }
  map_new(base, page);
  tell_numbers("mapped anew", base);
  CUdeviceptr usual = 0;
  must(cu().mem_alloc(&usual, page), "cuMemAlloc");
  say("cuMemAlloc's counts as mapped by hand", "%s", is_mapped_by_hand(cu(), usual) ? "YES" : "no");
}

}  // namespace pith::facts
