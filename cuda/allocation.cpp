#include "cuda/allocation.hpp"

#include <algorithm>

namespace pith::cuda {

namespace {

using Kind = Allocation::Kind;

template <class Condition>
DeviceSet those_of(const DeviceSet& devices, const Condition& holds) {
  DeviceSet found;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (devices[i]) found[i] = holds(static_cast<CUdevice>(i));
  }
  return found;
}

bool is_open_for(const Driver& driver, CUmemoryPool pool, CUdevice device) {
  CUmemLocation location{kLocationDevice, device};
  CUmemAccess_flags flags = kAccessNone;
  return driver.pool_get_access && driver.pool_get_access(&flags, pool, &location) == kSuccess &&
         flags == kAccessReadWrite;
}

// Precondition: `whole.id` is set.
std::optional<Allocation> of_pool(const Driver& driver, CUmemoryPool pool, CUdeviceptr address,
                                  MappedPart whole, const DeviceSet& devices) {
  if (driver.mem_address_range(&whole.base, &whole.bytes, address) != kSuccess) return {};
  const DeviceSet open =
      those_of(devices, [&](CUdevice device) { return is_open_for(driver, pool, device); });
  return Allocation{Kind::of_pool, {whole}, open};
}

std::optional<Allocation> mapped(const Driver& driver, CUdeviceptr address, std::size_t bytes,
                                 const DeviceSet& devices) {
  if (!maps_memory(driver)) return {};
  Allocation found{Kind::mapped, {}, devices};
  for (CUdeviceptr next = address; next < address + bytes; next = found.end()) {
    const std::optional<MappedPart> part = mapped_part_at(driver, next);
    const bool follows = part && (found.parts.empty() || part->base == found.end());
    if (!follows || found.parts.size() == Allocation::most_parts) return {};
    found.parts.push_back(*part);
    found.open_for = those_of(
        found.open_for, [&](CUdevice device) { return is_mapped_for(driver, part->base, device); });
  }
  return found;
}

}  // namespace

DeviceSet set_of(CUdevice device) {
  const auto number = static_cast<std::size_t>(device);
  DeviceSet set;
  if (number < set.size()) set.set(number);
  return set;
}

bool Allocation::spans(CUdeviceptr address, std::size_t bytes) const {
  return address >= base() && address < parts.front().end() && bytes <= end() - address &&
         address + bytes > parts.back().base;
}

bool Allocation::contradicts(const Allocation& other) const {
  return std::any_of(parts.begin(), parts.end(), [&](const MappedPart& mine) {
    return std::any_of(other.parts.begin(), other.parts.end(), [&](const MappedPart& its) {
      return mine.base < its.end() && its.base < mine.end() && (mine != its || kind != other.kind);
    });
  });
}

std::optional<Allocation> allocation_of(const Device& device, Bytes memory,
                                        const DeviceSet& devices) {
  const Driver& driver = device.driver();
  unsigned type = 0;
  CUcontext context = nullptr;
  MappedPart whole;
  CUpointer_attribute names[] = {kPointerMemoryType, kPointerContext, kPointerBufferId,
                                 kPointerRangeStart, kPointerRangeSize};
  void* values[] = {&type, &context, &whole.id, &whole.base, &whole.bytes};
  const CUdeviceptr address = address_of(memory.data);
  // The thread that drives the engine may have no current context; the driver may then refuse to
  // answer.
  const Current current(device);
  if (driver.pointer_attributes(5, names, values, address) != kSuccess) return {};
  if (type != kMemoryTypeDevice || (context && context != device.context())) return {};
  // Older drivers do not know this attribute; there, only memory that has a context can be used.
  CUmemoryPool pool = nullptr;
  if (!context && driver.pointer_attribute(&pool, kPointerPool, address) != kSuccess)
    pool = nullptr;
  std::optional<Allocation> found = context ? Allocation{Kind::of_context, {whole}, {}}
                                    : pool  ? of_pool(driver, pool, address, whole, devices)
                                            : mapped(driver, address, memory.size, devices);
  const bool good = found && found->parts.front().id != 0 && found->spans(address, memory.size);
  return good ? found : std::nullopt;
}

bool is_gone(const Driver& driver, Kind kind, std::span<const MappedPart> parts) {
  const CUpointer_attribute name = kind == Kind::mapped ? kPointerMemoryBlockId : kPointerBufferId;
  return std::any_of(parts.begin(), parts.end(), [&](const MappedPart& part) {
    std::uint64_t id = 0;
    return driver.pointer_attribute(&id, name, part.base) != kSuccess || id != part.id;
  });
}

}  // namespace pith::cuda
