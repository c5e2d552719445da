// What the driver knows about the device memory of a call: an allocation that belongs to a context
// or to a memory pool, or the consecutive mappings that hold the vector where the application maps
// physical memory itself (cuMemMap). For memory without a context each device's access is granted
// separately and can change, so the driver is asked each time and nothing is cached.
// Threads: any.
#pragma once

#include <bitset>
#include <optional>
#include <span>
#include <vector>

#include "core/memory.hpp"
#include "cuda/physical_memory.hpp"

namespace pith::cuda {

using DeviceSet = std::bitset<64>;  // by device number; from 64 on: no access
DeviceSet set_of(CUdevice device);

struct Allocation {
  enum class Kind { of_context, of_pool, mapped };
  // The descriptors of more parts would not fit in the queue of the peer's socket, which holds 10
  // messages in a new network namespace.
  static constexpr std::size_t most_parts = 640;

  Kind kind = Kind::of_context;
  std::vector<MappedPart> parts;  // contiguous and in order; more than one only for `mapped`
  DeviceSet open_for;  // devices with access, of those asked for; unused for `of_context`

  CUdeviceptr base() const { return parts.front().base; }
  CUdeviceptr end() const { return parts.back().end(); }
  // Whether the range begins in the first part and ends in the last.
  bool spans(CUdeviceptr address, std::size_t bytes) const;
  bool same_as(const Allocation& other) const { return kind == other.kind && parts == other.parts; }
  // The two overlap but differ, so they cannot both exist: one has been freed.
  bool contradicts(const Allocation& other) const;
};

// Empty if the memory is of another kind or context or has gaps, or if the driver gives no id that
// would tell it from later memory at the same address.
std::optional<Allocation> allocation_of(const Device& device, Bytes memory,
                                        const DeviceSet& devices);
// Whether any of these parts has been freed.
bool is_gone(const Driver& driver, Allocation::Kind kind, std::span<const MappedPart> parts);

}  // namespace pith::cuda
