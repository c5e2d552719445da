// What the driver says of the device memory that a call names: an allocation of a context or of a
// pool, or the stretch of mappings that the vector lies in, first to last, where an application has
// mapped physical memory by hand. Devices reach what belongs to no context as it was granted them,
// which may change: the driver is asked each time, and nothing is taken for granted.
// Threads: any.
#pragma once

#include <bitset>
#include <optional>
#include <span>
#include <vector>

#include "core/memory.hpp"
#include "cuda/physical_memory.hpp"

namespace pith::cuda {

using DeviceSet = std::bitset<64>;  // by number; one beyond reaches nothing
DeviceSet set_of(CUdevice device);

struct Allocation {
  enum class Kind { of_context, of_pool, mapped };
  // Descriptors of more would not fit in the queue of the peer's socket, of 10 messages in a new
  // network namespace.
  static constexpr std::size_t most_parts = 640;

  Kind kind = Kind::of_context;
  std::vector<MappedPart> parts;  // one behind another; more than one where mapped by hand
  DeviceSet open_for;             // of the devices asked for; of a context's it says nothing

  CUdeviceptr base() const { return parts.front().base; }
  CUdeviceptr end() const { return parts.back().end(); }
  // The range begins in the first part and ends in the last.
  bool spans(CUdeviceptr address, std::size_t bytes) const;
  bool same_as(const Allocation& other) const { return kind == other.kind && parts == other.parts; }
  // Some of the memory cannot be there in both.
  bool contradicts(const Allocation& other) const;
};

// None: memory of another kind or context, with gaps, or the driver does not tell it from what may
// be there later.
std::optional<Allocation> allocation_of(const Device& device, Bytes memory,
                                        const DeviceSet& devices);
// Whether one of these parts of such an allocation has been freed.
bool is_gone(const Driver& driver, Allocation::Kind kind, std::span<const MappedPart> parts);

}  // namespace pith::cuda
