// Device memory comes from a memory file (arena), pinned memory from malloc; a map of ranges tells
// device, pinned and unknown addresses apart.
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "tests/cuda_stub/arena.hpp"
#include "tests/cuda_stub/internal.hpp"

namespace pith::cuda {

namespace {

constexpr std::size_t alignment = 512;

using RangeEntry = std::map<std::uintptr_t, Range>::iterator;

// State::mutex held.
RangeEntry find(std::uintptr_t address) {
  auto& ranges = state().ranges;
  auto next = ranges.upper_bound(address);
  if (next == ranges.begin()) return ranges.end();
  --next;
  return address - next->first < next->second.bytes ? next : ranges.end();
}

void* allocate(std::size_t bytes, unsigned type) {
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  if (rounded < bytes) return nullptr;
  State& s = state();
  std::uint64_t id = 0;
  {
    std::lock_guard lock(s.mutex);
    id = s.next_id++;
  }
  void* memory = type == kMemoryTypeDevice ? Arena::process().take(bytes, id)
                                           : std::aligned_alloc(alignment, rounded);
  if (memory == nullptr) return nullptr;
  fill_uninitialised(memory, bytes);
  std::lock_guard lock(s.mutex);
  s.ranges[reinterpret_cast<std::uintptr_t>(memory)] =
      Range{bytes, type, false, false, current_context(), id};
  return memory;
}

// Forgets the range that begins at `address`; its context, or null when there is none such.
CUcontext forget(std::uintptr_t address, unsigned type, bool registered) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  auto entry = s.ranges.find(address);
  if (entry == s.ranges.end() || entry->second.type != type) return nullptr;
  const Range& range = entry->second;
  if (range.registered != registered || range.imported || range.physical) return nullptr;
  CUcontext context = entry->second.context;
  s.ranges.erase(entry);
  return context;
}

template <class T>
void store(void* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

bool lacks_context() { return state().attributes_need_context && current_context() == nullptr; }

CUresult attribute_of(void* value, CUpointer_attribute attribute, CUdeviceptr address) {
  std::lock_guard lock(state().mutex);
  auto entry = find(static_cast<std::uintptr_t>(address));
  if (attribute == kPointerMapped) {
    store(value, entry != state().ranges.end());
    return kSuccess;
  }
  if (entry == state().ranges.end()) return kErrorInvalidValue;
  const Range& range = entry->second;
  switch (attribute) {
    case kPointerContext:
      store(value, range.disowned ? 0 : reinterpret_cast<std::uintptr_t>(range.context));
      break;
    case kPointerMemoryType:
      store(value, range.type);
      break;
    case kPointerDevicePointer:
      store(value, address);
      break;
    case kPointerHostPointer:
      if (range.type != kMemoryTypeHost) return kErrorInvalidValue;
      store(value, address);
      break;
    case kPointerSyncMemops:
    case kPointerIsManaged:
      store(value, false);
      break;
    case kPointerBufferId:
      store(value, range.id);
      break;
    case kPointerDeviceOrdinal:
      store(value, range.context->device);
      break;
    // Of what is mapped by hand, the range that was reserved.
    case kPointerRangeStart:
      store(value, static_cast<CUdeviceptr>(range.physical ? reserved_range(entry->first)->first
                                                           : entry->first));
      break;
    case kPointerRangeSize:
      store(value, range.physical ? reserved_range(entry->first)->second : range.bytes);
      break;
    case kPointerLegacyIpcCapable:
      store(value, int{range.type == kMemoryTypeDevice && !range.disowned});
      break;
    case kPointerHandleTypes:
      store(value, std::uint64_t{range.physical && range.physical->handle_types != kHandleNone});
      break;
    case kPointerPool:
      store(value, reinterpret_cast<std::uintptr_t>(range.pool));
      break;
    case kPointerMemoryBlockId:
      store(value, range.physical ? range.physical->id : range.id);
      break;
    default:
      return kErrorNotSupported;
  }
  return kSuccess;
}

std::size_t attribute_bytes(CUpointer_attribute attribute) {
  switch (attribute) {
    case kPointerMemoryType:
    case kPointerDeviceOrdinal:
    case kPointerLegacyIpcCapable:
      return 4;
    case kPointerSyncMemops:
    case kPointerIsManaged:
    case kPointerMapped:
      return 1;
    default:
      return 8;
  }
}

}  // namespace

CUresult check_range(CUdeviceptr address, std::size_t bytes) {
  std::lock_guard lock(state().mutex);
  while (true) {
    const auto entry = find(static_cast<std::uintptr_t>(address));
    if (entry == state().ranges.end()) return kErrorInvalidValue;
    const Range& range = entry->second;
    const CUcontext context = current_context();
    const bool open =
        !range.physical || context == nullptr || range.reached_by.contains(context->device);
    if (!open) return kErrorInvalidValue;
    const std::size_t left = range.bytes - (static_cast<std::uintptr_t>(address) - entry->first);
    if (bytes <= left) return kSuccess;
    if (!range.physical) return kErrorInvalidValue;
    address += left;  // what is mapped by hand may go on in another mapping
    bytes -= left;
  }
}

Range* range_at(CUdeviceptr address, std::uintptr_t& base) {
  auto entry = find(static_cast<std::uintptr_t>(address));
  if (entry == state().ranges.end()) return nullptr;
  base = entry->first;
  return &entry->second;
}

bool is_device(CUdeviceptr address) {
  std::lock_guard lock(state().mutex);
  auto entry = find(static_cast<std::uintptr_t>(address));
  return entry != state().ranges.end() && entry->second.type == kMemoryTypeDevice;
}

bool is_pageable(CUdeviceptr address) {
  std::lock_guard lock(state().mutex);
  return find(static_cast<std::uintptr_t>(address)) == state().ranges.end();
}

extern "C" {

CUresult cuMemAlloc_v2(CUdeviceptr* address, std::size_t bytes) {
  if (CUresult r = enter_unsafe(Call::alloc); r != kSuccess) return r;
  if (current_context() == nullptr) return kErrorInvalidContext;
  if (CUresult fault = current_context()->fault; fault != kSuccess) return fault;
  if (address == nullptr || bytes == 0) return kErrorInvalidValue;
  if (bytes > state().largest_allocation) return kErrorOutOfMemory;
  void* memory = allocate(bytes, kMemoryTypeDevice);
  *address = reinterpret_cast<std::uintptr_t>(memory);
  return memory != nullptr ? kSuccess : kErrorOutOfMemory;
}

CUresult cuMemFree_v2(CUdeviceptr address) {
  if (CUresult r = enter_unsafe(Call::free); r != kSuccess) return r;
  if (address == 0) return kSuccess;
  const auto base = static_cast<std::uintptr_t>(address);
  CUcontext context = forget(base, kMemoryTypeDevice, false);
  if (context == nullptr) return kErrorInvalidValue;
  drain_to_free(context);  // as the driver does
  Arena::process().give(reinterpret_cast<void*>(base));
  return kSuccess;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr address) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  std::lock_guard lock(state().mutex);
  auto entry = find(static_cast<std::uintptr_t>(address));
  if (entry == state().ranges.end()) return kErrorNotFound;
  if (base != nullptr) *base = entry->first;
  if (bytes != nullptr) *bytes = entry->second.bytes;
  return kSuccess;
}

// Any descriptor, of whole pages of one allocation.
CUresult cuMemGetHandleForAddressRange(void* handle, CUdeviceptr address, std::size_t bytes,
                                       int type, unsigned long long) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  std::lock_guard lock(state().mutex);
  auto entry = find(static_cast<std::uintptr_t>(address));
  const bool whole = entry != state().ranges.end() && address % 4096 == 0 && bytes % 4096 == 0 &&
                     bytes != 0 && address + bytes <= entry->first + entry->second.bytes;
  if (!whole || type != kRangeAsDmaBuf) return kErrorInvalidValue;
  const int descriptor = memfd_create("dma-buf", MFD_CLOEXEC);
  std::memcpy(handle, &descriptor, sizeof descriptor);
  return kSuccess;
}

CUresult cuMemHostAlloc(void** memory, std::size_t bytes, unsigned) {
  if (CUresult r = enter_unsafe(Call::alloc); r != kSuccess) return r;
  if (current_context() == nullptr) return kErrorInvalidContext;
  if (CUresult fault = current_context()->fault; fault != kSuccess) return fault;
  if (memory == nullptr || bytes == 0) return kErrorInvalidValue;
  *memory = allocate(bytes, kMemoryTypeHost);
  return *memory != nullptr ? kSuccess : kErrorOutOfMemory;
}

CUresult cuMemFreeHost(void* memory) {
  if (CUresult r = enter_unsafe(Call::free); r != kSuccess) return r;
  CUcontext context = forget(reinterpret_cast<std::uintptr_t>(memory), kMemoryTypeHost, false);
  if (context == nullptr) return kErrorInvalidValue;
  drain_to_free(context);
  std::free(memory);
  return kSuccess;
}

CUresult cuMemHostRegister_v2(void* memory, std::size_t bytes, unsigned) {
  if (CUresult r = enter_unsafe(Call::alloc); r != kSuccess) return r;
  if (current_context() == nullptr) return kErrorInvalidContext;
  if (memory == nullptr || bytes == 0) return kErrorInvalidValue;
  State& s = state();
  const auto base = reinterpret_cast<std::uintptr_t>(memory);
  std::lock_guard lock(s.mutex);
  auto next = s.ranges.lower_bound(base);
  const bool overlaps =
      find(base) != s.ranges.end() || (next != s.ranges.end() && next->first - base < bytes);
  if (overlaps) return kErrorHostMemoryAlreadyRegistered;
  s.ranges[base] = Range{bytes, kMemoryTypeHost, true, false, current_context(), s.next_id++};
  return kSuccess;
}

CUresult cuMemHostUnregister(void* memory) {
  if (CUresult r = enter_unsafe(Call::free); r != kSuccess) return r;
  CUcontext context = forget(reinterpret_cast<std::uintptr_t>(memory), kMemoryTypeHost, true);
  if (context == nullptr) return kErrorHostMemoryNotRegistered;
  drain_to_free(context);
  return kSuccess;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* address, void* memory, unsigned flags) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  const CUdeviceptr same = reinterpret_cast<std::uintptr_t>(memory);
  unsigned type = 0;
  if (flags != 0 || attribute_of(&type, kPointerMemoryType, same) != kSuccess)
    return kErrorInvalidValue;
  if (type != kMemoryTypeHost) return kErrorInvalidValue;
  *address = same;
  return kSuccess;
}

void pithStubDisown(CUdeviceptr address) {
  std::lock_guard lock(state().mutex);
  const auto entry = find(static_cast<std::uintptr_t>(address));
  if (entry != state().ranges.end()) entry->second.disowned = true;
}

CUresult cuPointerGetAttribute(void* value, CUpointer_attribute attribute, CUdeviceptr address) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  if (value == nullptr) return kErrorInvalidValue;
  if (lacks_context()) return kErrorInvalidContext;
  return attribute_of(value, attribute, address);
}

// An unknown address is no error here: every value is then zero, as the driver does it.
CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** values,
                                CUdeviceptr address) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  if (lacks_context()) return kErrorInvalidContext;
  for (unsigned i = 0; i < count; ++i) {
    if (attribute_of(values[i], attributes[i], address) != kSuccess)
      std::memset(values[i], 0, attribute_bytes(attributes[i]));
  }
  return kSuccess;
}

}  // extern "C"

}  // namespace pith::cuda
