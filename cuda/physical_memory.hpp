// Physical device memory by handle: what cuMemCreate creates and cuMemMap maps. A mapping is
// identified by the driver's id of the memory behind it, whatever was at its address before.
//
// An application grows and shrinks a reserved range by adding and removing mappings. The driver's
// range attributes (CU_POINTER_ATTRIBUTE_RANGE_*) describe the reservation, not what is mapped.
// None of this has run on a GPU.
// Threads: any.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "cuda/descriptor_socket.hpp"
#include "cuda/device.hpp"

namespace pith::cuda {

// Whether the driver has all functions needed to map physical memory and to share it.
bool maps_memory(const Driver& driver);

struct MappedPart {
  std::uint64_t id = 0;  // of the physical memory
  CUdeviceptr base = 0;
  std::size_t bytes = 0;

  CUdeviceptr end() const { return base + bytes; }
  bool operator==(const MappedPart&) const = default;
};

// The mapping that holds the address; empty if nothing is mapped by hand there.
std::optional<MappedPart> mapped_part_at(const Driver& driver, CUdeviceptr address);

// Whether kernels of `device` may read and write there.
bool is_mapped_for(const Driver& driver, CUdeviceptr address, CUdevice device);

// Whether the memory was created to be exported as a descriptor.
bool has_descriptor(const Driver& driver, CUdeviceptr address);

// Exports what is mapped now and sends the descriptors. May block in the driver.
DescriptorSocket::Sent send_descriptors(const Driver& driver, const DescriptorSocket::Address& to,
                                        std::uint32_t slot, std::span<const MappedPart> parts);

// A reserved address range, mapped from its beginning on; unmapped and released when destroyed.
class MappedRange {
 public:
  explicit MappedRange(const Driver& driver) : driver_(&driver) {}
  MappedRange(MappedRange&& other) noexcept;
  MappedRange& operator=(MappedRange&&) = delete;
  ~MappedRange();

  CUresult reserve(std::size_t bytes);
  // Maps behind what is mapped already. The caller may release the handle afterwards.
  CUresult map(CUmemGenericAllocationHandle handle, std::size_t bytes);
  // Grants the device access to the whole range. Precondition: all of it is mapped.
  CUresult open_for(CUdevice device);

  CUdeviceptr base() const { return base_; }
  // Gives up ownership; the mappings stay.
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

// Exportable device memory, open to all devices with peer access; 0: the driver refused. `bytes`
// are rounded up.
CUdeviceptr allocate_exportable(const Driver& driver, CUdevice device, std::size_t bytes);
bool is_mapped_by_hand(const Driver& driver, CUdeviceptr address);
// Frees memory of allocate_exportable(); does not block.
CUresult free_exportable(const Driver& driver, CUdeviceptr address);

}  // namespace pith::cuda
