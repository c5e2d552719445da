// The stub driver: memory that is mapped by hand, and that of pools.
#include <unistd.h>

#include "tests/cuda_stub/fixture.hpp"

using namespace pith::cuda;
using namespace pith::cuda::test;

namespace {

constexpr std::size_t page = std::size_t{2} << 20;

CUmemAllocationProp prop_of(CUdevice device, CUmemAllocationHandleType types) {
  CUmemAllocationProp prop{};
  prop.type = kMemoryPinned;
  prop.requestedHandleTypes = types;
  prop.location = {kLocationDevice, device};
  return prop;
}

CUmemGenericAllocationHandle create(std::size_t bytes,
                                    CUmemAllocationHandleType types = kHandleDescriptor) {
  const CUmemAllocationProp prop = prop_of(0, types);
  CUmemGenericAllocationHandle handle = 0;
  OK(cu().mem_create(&handle, bytes, &prop, 0));
  return handle;
}

CUresult open(CUdeviceptr address, std::size_t bytes, CUdevice device = 0) {
  const CUmemAccessDesc access{{kLocationDevice, device}, kAccessReadWrite};
  return cu().mem_set_access(address, bytes, &access, 1);
}

// Three pages of address space.
struct Reserved {
  Reserved() { OK(cu().mem_reserve(&base, 3 * page, 0, 0, 0)); }
  ~Reserved() { CHECK(cu().mem_unreserve(base, 3 * page) == kSuccess); }
  Reserved(const Reserved&) = delete;
  CUdeviceptr base = 0;
};

template <class T>
T attribute(CUpointer_attribute name, CUdeviceptr address) {
  T value{};
  OK(cu().pointer_attribute(&value, name, address));
  return value;
}

}  // namespace

TEST_CASE("memory is mapped by hand in whole pages only") {
  const Device device;
  const Reserved reserved;
  const CUmemAllocationProp prop = prop_of(0, kHandleNone);
  std::size_t granularity = 0;
  OK(cu().mem_granularity(&granularity, &prop, kGranularityMinimum));
  CHECK(granularity == page);
  CUmemGenericAllocationHandle handle = 0;
  CHECK(cu().mem_create(&handle, page + 4096, &prop, 0) == kErrorInvalidValue);
  OK(cu().mem_create(&handle, page, &prop, 0));
  CHECK(cu().mem_map(reserved.base + 4096, page, 0, handle, 0) == kErrorInvalidValue);
  CHECK(cu().mem_map(reserved.base, 2 * page, 0, handle, 0) == kErrorInvalidValue);
  CHECK(cu().mem_map(reserved.base + 3 * page, page, 0, handle, 0) == kErrorInvalidValue);
  OK(cu().mem_map(reserved.base, page, 0, handle, 0));
  CHECK(cu().mem_map(reserved.base, page, 0, handle, 0) == kErrorInvalidValue);  // it is taken
  CHECK(cu().mem_unreserve(reserved.base, 3 * page) == kErrorInvalidValue);
  CHECK(cu().mem_free(reserved.base) == kErrorInvalidValue);
  CHECK(cu().mem_unmap(reserved.base, 2 * page) == kErrorInvalidValue);
  OK(cu().mem_unmap(reserved.base, page));
  OK(cu().mem_release(handle));
  CHECK(cu().mem_release(handle) == kErrorInvalidValue);
}

TEST_CASE("what is mapped by hand is touched by devices that may") {
  const Device device;
  const Stream stream;
  const Reserved reserved;
  const Words word(1);
  for (const std::size_t i : {0, 1}) {
    const auto handle = create(page);
    OK(cu().mem_map(reserved.base + i * page, page, 0, handle, 0));
    OK(cu().mem_release(handle));
  }
  CHECK(cu().memset_async(reserved.base, 1, page, stream) == kErrorInvalidValue);
  OK(open(reserved.base, page));
  CHECK(open(reserved.base, 3 * page) == kErrorInvalidValue);  // a part is not mapped
  OK(cu().memset_async(reserved.base, 1, page, stream));
  CHECK(cu().memset_async(reserved.base, 1, 2 * page, stream) == kErrorInvalidValue);
  OK(open(reserved.base, 2 * page, 1));
  OK(open(reserved.base + page, page));
  OK(cu().memset_async(reserved.base, 2, 2 * page, stream));  // across mappings
  OK(cu().stream_synchronize(stream));
  CHECK(*host_view<unsigned char>(reserved.base + 2 * page - 1) == 2);
  CHECK(cu().memset_async(reserved.base, 2, 2 * page + 1, stream) == kErrorInvalidValue);
  const CUmemLocation other{kLocationDevice, 1};
  unsigned long long flags = 7;
  OK(cu().mem_get_access(&flags, &other, reserved.base + page));
  CHECK(flags == static_cast<unsigned long long>(kAccessReadWrite));
  // What is mapped anew is closed.
  OK(cu().mem_unmap(reserved.base, 2 * page));
  const auto handle = create(page);
  OK(cu().mem_map(reserved.base, page, 0, handle, 0));
  OK(cu().mem_get_access(&flags, &other, reserved.base));
  CHECK(flags == static_cast<unsigned long long>(kAccessNone));
  OK(cu().mem_unmap(reserved.base, page));
  OK(cu().mem_release(handle));
}

TEST_CASE("what the driver says of memory that is mapped by hand") {
  const Device device;
  const Reserved reserved;
  const auto handle = create(page);
  OK(cu().mem_map(reserved.base, page, 0, handle, 0));
  OK(cu().mem_map(reserved.base + page, page, 0, handle, 0));
  const CUdeviceptr inside = reserved.base + page + 8;
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  OK(cu().mem_address_range(&base, &bytes, inside));
  CHECK((base == reserved.base + page && bytes == page));
  CHECK(attribute<CUdeviceptr>(kPointerRangeStart, inside) == reserved.base);
  CHECK(attribute<std::size_t>(kPointerRangeSize, inside) == 3 * page);
  CHECK(attribute<CUcontext>(kPointerContext, inside) == nullptr);
  CHECK(attribute<CUmemoryPool>(kPointerPool, inside) == nullptr);
  CHECK(attribute<int>(kPointerLegacyIpcCapable, inside) == 0);
  CHECK(attribute<std::uint64_t>(kPointerHandleTypes, inside) == 1);
  const auto block = attribute<std::uint64_t>(kPointerMemoryBlockId, inside);
  CHECK(block == attribute<std::uint64_t>(kPointerMemoryBlockId, reserved.base));
  CUipcMemHandle ipc;
  CHECK(cu().ipc_get_handle(&ipc, inside) == kErrorInvalidValue);
  CUmemGenericAllocationHandle again = 0;
  OK(cu().mem_retain(&again, host_view<void>(inside)));
  CHECK(again == handle);
  CHECK(cu().mem_retain(&again, host_view<void>(reserved.base + 2 * page)) == kErrorInvalidValue);
  OK(cu().mem_release(handle));
  OK(cu().mem_unmap(reserved.base, 2 * page));  // all that holds it is the handle, held once more
  OK(cu().mem_map(reserved.base, page, 0, handle, 0));
  CHECK(attribute<std::uint64_t>(kPointerMemoryBlockId, reserved.base) == block);
  OK(cu().mem_unmap(reserved.base, page));
  OK(cu().mem_release(handle));
}

TEST_CASE("physical memory is exported if it was made for that") {
  const Device device;
  const Reserved reserved;
  const auto closed = create(page, kHandleNone);
  const auto handle = create(page);
  int fd = -1;
  CHECK(cu().mem_export(&fd, closed, kHandleDescriptor, 0) == kErrorInvalidValue);
  OK(cu().mem_export(&fd, handle, kHandleDescriptor, 0));
  const auto shareable = [](int of) {
    return reinterpret_cast<void*>(static_cast<std::uintptr_t>(of));
  };
  CUmemGenericAllocationHandle imported = 0;
  CHECK(cu().mem_import(&imported, shareable(STDIN_FILENO), kHandleDescriptor) ==
        kErrorInvalidValue);
  OK(cu().mem_import(&imported, shareable(fd), kHandleDescriptor));
  close(fd);
  OK(cu().mem_map(reserved.base, page, 0, handle, 0));
  OK(cu().mem_map(reserved.base + page, page, 0, imported, 0));
  OK(open(reserved.base, 2 * page));
  *host_view<int>(reserved.base + 40) = 12345;
  CHECK(*host_view<int>(reserved.base + page + 40) == 12345);
  OK(cu().mem_unmap(reserved.base, 2 * page));
  for (const auto each : {closed, handle, imported}) OK(cu().mem_release(each));
}

TEST_CASE("memory of a pool belongs to no context, and goes in the stream's order") {
  const Device device;
  const Stream stream;
  const Words flag(1);
  CUdeviceptr address = 0;
  OK(cu().mem_alloc_async(&address, 1000, stream));
  CUmemoryPool pool = nullptr;
  OK(cu().default_pool(&pool, 0));
  CHECK(attribute<CUmemoryPool>(kPointerPool, address) == pool);
  CHECK(attribute<CUcontext>(kPointerContext, address) == nullptr);
  CHECK(attribute<std::uint64_t>(kPointerHandleTypes, address) == 0);
  CUipcMemHandle ipc;
  CHECK(cu().ipc_get_handle(&ipc, address) == kErrorInvalidValue);
  CUmemLocation own{kLocationDevice, 0}, other{kLocationDevice, 1};
  CUmemAccess_flags flags = kAccessNone;
  OK(cu().pool_get_access(&flags, pool, &own));
  CHECK(flags == kAccessReadWrite);
  OK(cu().pool_get_access(&flags, pool, &other));
  CHECK(flags == kAccessNone);
  OK(cu().wait_value64(stream, flag.at(0), 1, kWaitValueGeq));
  OK(cu().mem_free_async(address, stream));
  CHECK(attribute<std::size_t>(kPointerRangeSize, address) == 1000);
  flag[0] = 1;
  OK(cu().stream_synchronize(stream));
  std::size_t bytes = 0;
  CHECK(cu().pointer_attribute(&bytes, kPointerRangeSize, address) == kErrorInvalidValue);
}
