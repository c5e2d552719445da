// Physical device memory by its handles: what cuMemCreate makes and cuMemMap maps. A mapping is
// known by the driver's number of the memory behind it, whatever has been at its address before.
//
// A range that an application has reserved grows and shrinks by mappings, one behind another: what
// is said of the whole range (CU_POINTER_ATTRIBUTE_RANGE_*) says nothing of what is mapped.
// None of this has run on a GPU.
// Threads: any.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "cuda/descriptor_socket.hpp"
#include "cuda/device.hpp"

namespace pith::cuda {

// Whether the driver knows all that is needed to map, and to share what is mapped.
bool maps_memory(const Driver& driver);

struct MappedPart {
  std::uint64_t id = 0;  // of the physical memory
  CUdeviceptr base = 0;
  std::size_t bytes = 0;

  CUdeviceptr end() const { return base + bytes; }
  bool operator==(const MappedPart&) const = default;
};

// The mapping that holds the address; none where nothing is mapped by hand.
std::optional<MappedPart> mapped_part_at(const Driver& driver, CUdeviceptr address);

// Whether kernels of a device may read and write there.
bool is_mapped_for(const Driver& driver, CUdeviceptr address, CUdevice device);

// Whether it was created to be exported as a descriptor.
bool has_descriptor(const Driver& driver, CUdeviceptr address);

// Descriptors of what is there now, and sends them; the driver may wait.
DescriptorSocket::Sent send_descriptors(const Driver& driver, const DescriptorSocket::Address& to,
                                        std::uint32_t slot, std::span<const MappedPart> parts);

// A reserved range and what is mapped there, from its beginning on; both end with this.
class MappedRange {
 public:
  explicit MappedRange(const Driver& driver) : driver_(&driver) {}
  MappedRange(MappedRange&& other) noexcept;
  MappedRange& operator=(MappedRange&&) = delete;
  ~MappedRange();

  CUresult reserve(std::size_t bytes);
  // Behind what is mapped already. The handle may be released then.
  CUresult map(CUmemGenericAllocationHandle handle, std::size_t bytes);
  // All of it, which is mapped.
  CUresult open_for(CUdevice device);

  CUdeviceptr base() const { return base_; }
  // Leaves it as it is.
  CUdeviceptr let_go();

 private:
  const Driver* driver_;
  CUdeviceptr base_ = 0;
  std::size_t bytes_ = 0;
  std::size_t mapped_bytes_ = 0;
  std::vector<std::size_t> parts_;
};

// Maps another process's memory for the device.
CUresult import_parts(const Driver& driver, std::span<const MemoryPart> parts, CUdevice device,
                      MappedRange& range);

// Memory of the device that can be exported, and that the others reach which can; 0 where the
// driver does not give it. `bytes` are rounded up.
CUdeviceptr allocate_exportable(const Driver& driver, CUdevice device, std::size_t bytes);
bool is_mapped_by_hand(const Driver& driver, CUdeviceptr address);
// Of what allocate_exportable() gave; waits for nobody.
CUresult free_exportable(const Driver& driver, CUdeviceptr address);

}  // namespace pith::cuda
