// Device memory that is mapped by hand: physical memory is a memory file each, whose last page says
// what it is, so that a descriptor of it can be mapped in another process. What no device may touch
// cannot be touched by the host either.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "tests/cuda_stub/internal.hpp"

namespace pith::cuda {

namespace {

constexpr std::size_t granularity = std::size_t{2} << 20;
constexpr std::size_t page = 4096;

struct Label {
  static constexpr std::uint64_t right_magic = 0x4c41434953594850;
  std::uint64_t magic = right_magic;
  std::uint64_t bytes = 0;
  std::int32_t device = 0;
};

struct Handle {
  std::shared_ptr<Physical> memory;
  int held = 0;
};

struct Reservation {
  std::size_t bytes = 0;
  std::uint64_t id = 0;
};

// State::mutex held.
struct Mapping {
  std::map<CUmemGenericAllocationHandle, Handle> handles;
  std::map<std::uintptr_t, Reservation> reservations;
  CUmemGenericAllocationHandle last = 0;
};

Mapping& mapping() {
  static auto* const all = new Mapping;
  return *all;
}

void* pointer_to(CUdeviceptr address) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
}

bool is_whole(std::size_t bytes) { return bytes != 0 && bytes % granularity == 0; }

bool is_device(const CUmemLocation& location) {
  return location.type == kLocationDevice && location.id >= 0 &&
         static_cast<std::size_t>(location.id) < state().contexts.size();
}

CUresult check_prop(const CUmemAllocationProp* prop) {
  if (prop == nullptr || prop->type != kMemoryPinned) return kErrorInvalidValue;
  if ((prop->requestedHandleTypes & ~kHandleDescriptor) != 0) return kErrorNotSupported;
  return is_device(prop->location) ? kSuccess : kErrorInvalidDevice;
}

// A handle that names this memory, held once more.
CUmemGenericAllocationHandle hold(const std::shared_ptr<Physical>& memory) {
  for (auto& [handle, known] : mapping().handles) {
    if (known.memory != memory) continue;
    ++known.held;
    return handle;
  }
  mapping().handles[++mapping().last] = {memory, 1};
  return mapping().last;
}

std::shared_ptr<Physical> memory_of(CUmemGenericAllocationHandle handle) {
  const auto found = mapping().handles.find(handle);
  return found == mapping().handles.end() ? nullptr : found->second.memory;
}

// The reservation that holds all of this, if any.
const Reservation* reservation_of(std::uintptr_t address, std::size_t bytes) {
  auto next = mapping().reservations.upper_bound(address);
  if (next == mapping().reservations.begin()) return nullptr;
  --next;
  const std::size_t offset = address - next->first;
  const bool inside = offset < next->second.bytes && bytes <= next->second.bytes - offset;
  return inside ? &next->second : nullptr;
}

// Calls visit(base, range) for mappings that fill the range without a gap; false: they do not.
template <class Visit>
bool for_mappings(std::uintptr_t address, std::size_t bytes, const Visit& visit) {
  std::vector<std::pair<std::uintptr_t, Range*>> found;
  for (const std::uintptr_t end = address + bytes; address < end;) {
    std::uintptr_t base = 0;
    Range* const range = range_at(address, base);
    const bool fits = range != nullptr && range->physical && base == address;
    if (!fits || range->bytes > end - address) return false;
    found.emplace_back(base, range);
    address += range->bytes;
  }
  for (const auto& [base, range] : found) visit(base, *range);
  return true;
}

std::shared_ptr<Physical> make_physical(int fd, std::size_t bytes, CUdevice device, int types) {
  return std::make_shared<Physical>(fd, bytes, device, types, state().next_id++);
}

}  // namespace

Physical::~Physical() { close(fd); }

std::optional<std::pair<std::uintptr_t, std::size_t>> reserved_range(std::uintptr_t address) {
  for (const auto& [base, reservation] : mapping().reservations) {
    if (address >= base && address - base < reservation.bytes) return {{base, reservation.bytes}};
  }
  return std::nullopt;
}

extern "C" {

CUresult cuMemGetAllocationGranularity(std::size_t* bytes, const CUmemAllocationProp* prop,
                                       CUmemAllocationGranularity_flags) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  std::lock_guard lock(state().mutex);
  if (!state().maps_memory) return kErrorNotSupported;
  if (CUresult r = check_prop(prop); r != kSuccess) return r;
  *bytes = granularity;
  return kSuccess;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t bytes,
                     const CUmemAllocationProp* prop, unsigned long long flags) {
  if (CUresult r = enter_unsafe(Call::alloc); r != kSuccess) return r;
  std::lock_guard lock(state().mutex);
  if (!state().maps_memory) return kErrorNotSupported;
  if (CUresult r = check_prop(prop); r != kSuccess) return r;
  if (handle == nullptr || flags != 0 || !is_whole(bytes)) return kErrorInvalidValue;
  if (bytes > state().largest_allocation) return kErrorOutOfMemory;
  const int fd = memfd_create("pith-stub-physical", MFD_CLOEXEC);
  const Label label{Label::right_magic, bytes, prop->location.id};
  const bool made = fd >= 0 && ftruncate(fd, static_cast<off_t>(bytes + page)) == 0 &&
                    pwrite(fd, &label, sizeof label, static_cast<off_t>(bytes)) == sizeof label;
  void* const memory =
      made ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  if (memory == MAP_FAILED) {
    close(fd);
    return kErrorOutOfMemory;
  }
  fill_uninitialised(memory, bytes);
  munmap(memory, bytes);
  *handle = hold(make_physical(fd, bytes, prop->location.id, prop->requestedHandleTypes));
  return kSuccess;
}

// What is mapped stays.
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  std::lock_guard lock(state().mutex);
  const auto found = mapping().handles.find(handle);
  if (found == mapping().handles.end()) return kErrorInvalidValue;
  if (--found->second.held == 0) mapping().handles.erase(found);
  return kSuccess;
}

CUresult cuMemAddressReserve(CUdeviceptr* address, std::size_t bytes, std::size_t alignment,
                             CUdeviceptr, unsigned long long flags) {
  if (CUresult r = enter_unsafe(Call::alloc); r != kSuccess) return r;
  if (address == nullptr || flags != 0 || !is_whole(bytes)) return kErrorInvalidValue;
  if (alignment > granularity) return kErrorNotSupported;
  void* const memory = mmap(nullptr, bytes + granularity, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return kErrorOutOfMemory;
  // From the first multiple on; what is before and behind it is given back.
  const auto start = reinterpret_cast<std::uintptr_t>(memory);
  const std::uintptr_t base = (start + granularity - 1) / granularity * granularity;
  if (base > start) munmap(memory, base - start);
  munmap(reinterpret_cast<void*>(base + bytes), start + granularity - base);
  std::lock_guard lock(state().mutex);
  mapping().reservations[base] = {bytes, state().next_id++};
  *address = base;
  return kSuccess;
}

CUresult cuMemAddressFree(CUdeviceptr address, std::size_t bytes) {
  if (CUresult r = enter_unsafe(Call::free); r != kSuccess) return r;
  const auto base = static_cast<std::uintptr_t>(address);
  std::lock_guard lock(state().mutex);
  const auto found = mapping().reservations.find(base);
  if (found == mapping().reservations.end() || found->second.bytes != bytes) {
    return kErrorInvalidValue;
  }
  const auto mapped = state().ranges.lower_bound(base);
  if (mapped != state().ranges.end() && mapped->first < base + bytes) return kErrorInvalidValue;
  mapping().reservations.erase(found);
  munmap(pointer_to(address), bytes);
  return kSuccess;
}

CUresult cuMemMap(CUdeviceptr address, std::size_t bytes, std::size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags) {
  if (CUresult r = enter_unsafe(Call::alloc); r != kSuccess) return r;
  const auto base = static_cast<std::uintptr_t>(address);
  if (!is_whole(bytes) || base % granularity != 0 || offset != 0 || flags != 0) {
    return kErrorInvalidValue;
  }
  std::lock_guard lock(state().mutex);
  const std::shared_ptr<Physical> memory = memory_of(handle);
  const Reservation* const reservation = reservation_of(base, bytes);
  if (memory == nullptr || reservation == nullptr || bytes > memory->bytes) {
    return kErrorInvalidValue;
  }
  std::uintptr_t known = 0;
  const auto next = state().ranges.lower_bound(base);
  const bool overlaps = range_at(address, known) != nullptr ||
                        (next != state().ranges.end() && next->first < base + bytes);
  if (overlaps) return kErrorInvalidValue;
  if (mmap(pointer_to(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, memory->fd, 0) ==
      MAP_FAILED) {
    return kErrorMapFailed;
  }
  Range range{bytes, kMemoryTypeDevice, false, false,
              &state().contexts[static_cast<std::size_t>(memory->device)]};
  // Whether the driver has one for each mapping it does not say.
  range.id = reservation->id;
  range.disowned = true;
  range.physical = memory;
  state().ranges[base] = range;
  return kSuccess;
}

// Waits for nobody: whose work still touches the memory has a mistake in it.
CUresult cuMemUnmap(CUdeviceptr address, std::size_t bytes) {
  if (CUresult r = enter_unsafe(Call::free); r != kSuccess) return r;
  if (!is_whole(bytes)) return kErrorInvalidValue;
  std::lock_guard lock(state().mutex);
  std::vector<std::uintptr_t> bases;
  const auto note = [&](std::uintptr_t base, const Range&) { bases.push_back(base); };
  if (!for_mappings(static_cast<std::uintptr_t>(address), bytes, note)) return kErrorInvalidValue;
  for (const std::uintptr_t base : bases) state().ranges.erase(base);
  // In its place, so that the reservation stays one.
  void* const nothing = mmap(pointer_to(address), bytes, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  return nothing != MAP_FAILED ? kSuccess : kErrorOutOfMemory;
}

CUresult cuMemSetAccess(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* access,
                        std::size_t count) {
  if (CUresult r = enter_unsafe(Call::alloc); r != kSuccess) return r;
  if (!is_whole(bytes) || access == nullptr) return kErrorInvalidValue;
  std::lock_guard lock(state().mutex);
  for (std::size_t i = 0; i < count; ++i) {
    if (!is_device(access[i].location)) return kErrorInvalidDevice;
  }
  bool reached = true;
  const auto look = [&](std::uintptr_t, const Range& range) {
    for (std::size_t i = 0; i < count; ++i) {
      reached &= access[i].flags == kAccessNone || state().peers_reach ||
                 access[i].location.id == range.physical->device;
    }
  };
  if (!for_mappings(static_cast<std::uintptr_t>(address), bytes, look)) return kErrorInvalidValue;
  if (!reached) return kErrorPeerAccessUnsupported;
  for_mappings(static_cast<std::uintptr_t>(address), bytes, [&](std::uintptr_t base, Range& range) {
    for (std::size_t i = 0; i < count; ++i) {
      if (access[i].flags == kAccessReadWrite) {
        range.reached_by.insert(access[i].location.id);
      } else {
        range.reached_by.erase(access[i].location.id);
      }
    }
    mprotect(reinterpret_cast<void*>(base), range.bytes,
             range.reached_by.empty() ? PROT_NONE : PROT_READ | PROT_WRITE);
  });
  return kSuccess;
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location,
                        CUdeviceptr address) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  std::lock_guard lock(state().mutex);
  std::uintptr_t base = 0;
  const Range* const range = range_at(address, base);
  if (flags == nullptr || location == nullptr || range == nullptr || !range->physical) {
    return kErrorInvalidValue;
  }
  if (!is_device(*location)) return kErrorInvalidDevice;
  *flags = static_cast<unsigned long long>(
      range->reached_by.contains(location->id) ? kAccessReadWrite : kAccessNone);
  return kSuccess;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  std::lock_guard lock(state().mutex);
  std::uintptr_t base = 0;
  const Range* const range = range_at(reinterpret_cast<std::uintptr_t>(address), base);
  if (handle == nullptr || range == nullptr || !range->physical) return kErrorInvalidValue;
  *handle = hold(range->physical);
  return kSuccess;
}

CUresult cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  std::lock_guard lock(state().mutex);
  const std::shared_ptr<Physical> memory = memory_of(handle);
  if (shareable == nullptr || flags != 0 || memory == nullptr || type != kHandleDescriptor ||
      (memory->handle_types & type) == 0) {
    return kErrorInvalidValue;
  }
  const int fd = fcntl(memory->fd, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return kErrorOutOfMemory;
  std::memcpy(shareable, &fd, sizeof fd);
  ++state().counters.descriptors_exported;
  return kSuccess;
}

// The descriptor stays its owner's.
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shareable,
                                        CUmemAllocationHandleType type) {
  if (CUresult r = enter(Call::other); r != kSuccess) return r;
  if (handle == nullptr || type != kHandleDescriptor) return kErrorInvalidValue;
  const int given = static_cast<int>(reinterpret_cast<std::uintptr_t>(shareable));
  struct stat status = {};
  Label label;
  const bool labelled = fstat(given, &status) == 0 && status.st_size > static_cast<off_t>(page) &&
                        pread(given, &label, sizeof label,
                              status.st_size - static_cast<off_t>(page)) == sizeof label &&
                        label.magic == Label::right_magic;
  if (!labelled) return kErrorInvalidValue;
  const int fd = fcntl(given, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return kErrorOutOfMemory;
  std::lock_guard lock(state().mutex);
  *handle = hold(make_physical(fd, label.bytes, label.device, kHandleDescriptor));
  return kSuccess;
}

}  // extern "C"

}  // namespace pith::cuda
