#include "cuda/physical_memory.hpp"

#include <algorithm>
#include <utility>

namespace pith::cuda {

namespace {

void* pointer_to(CUdeviceptr address) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
}

// Releases the handle when destroyed.
class HeldHandle {
 public:
  explicit HeldHandle(const Driver& driver) : driver_(driver) {}
  HeldHandle(const HeldHandle&) = delete;
  ~HeldHandle() {
    if (handle_ != 0) driver_.mem_release(handle_);
  }
  CUmemGenericAllocationHandle* out() { return &handle_; }
  CUmemGenericAllocationHandle get() const { return handle_; }

 private:
  const Driver& driver_;
  CUmemGenericAllocationHandle handle_ = 0;
};

// Invalid if the driver exports none, or if other memory is mapped there now.
OwnedDescriptor descriptor_of(const Driver& driver, const MappedPart& part) {
  HeldHandle handle(driver);
  if (driver.mem_retain(handle.out(), pointer_to(part.base)) != kSuccess) return OwnedDescriptor();
  int fd = -1;
  if (driver.mem_export(&fd, handle.get(), kHandleDescriptor, 0) != kSuccess) {
    return OwnedDescriptor();
  }
  OwnedDescriptor descriptor(fd);
  return mapped_part_at(driver, part.base) == part ? std::move(descriptor) : OwnedDescriptor();
}

bool has_attribute(const Driver& driver, CUdevice_attribute attribute, CUdevice device) {
  int value = 0;
  return driver.device_attribute(&value, attribute, device) == kSuccess && value != 0;
}

CUmemAllocationProp exportable_on(const Driver& driver, CUdevice device) {
  CUmemAllocationProp prop{};
  prop.type = kMemoryPinned;
  prop.requestedHandleTypes = kHandleDescriptor;
  prop.location = {kLocationDevice, device};
  const bool reached = has_attribute(driver, kDeviceNetworkReachesMapped, device);
  prop.allocFlags.gpuDirectRDMACapable = reached ? 1 : 0;
  return prop;
}

// Grants access to all devices with peer access, as memory of cuMemAlloc has it.
void open_for_others(const Driver& driver, MappedRange& range, CUdevice device) {
  int devices = 0;
  if (!driver.device_can_access_peer || driver.device_count(&devices) != kSuccess) return;
  for (CUdevice other = 0; other < devices; ++other) {
    int can = 0;
    if (other == device) continue;
    if (driver.device_can_access_peer(&can, other, device) == kSuccess && can != 0) {
      range.open_for(other);
    }
  }
}

}  // namespace

bool maps_memory(const Driver& driver) {
  return driver.mem_create && driver.mem_release && driver.mem_reserve && driver.mem_unreserve &&
         driver.mem_map && driver.mem_unmap && driver.mem_set_access && driver.mem_get_access &&
         driver.mem_retain && driver.mem_export && driver.mem_import && driver.mem_granularity;
}

std::optional<MappedPart> mapped_part_at(const Driver& driver, CUdeviceptr address) {
  MappedPart part;
  if (driver.pointer_attribute(&part.id, kPointerMemoryBlockId, address) != kSuccess) return {};
  if (driver.mem_address_range(&part.base, &part.bytes, address) != kSuccess) return {};
  const bool holds = part.base <= address && address - part.base < part.bytes;
  return holds && part.id != 0 ? std::optional(part) : std::nullopt;
}

bool is_mapped_for(const Driver& driver, CUdeviceptr address, CUdevice device) {
  const CUmemLocation location{kLocationDevice, device};
  unsigned long long flags = 0;
  return driver.mem_get_access(&flags, &location, address) == kSuccess &&
         flags == static_cast<unsigned long long>(kAccessReadWrite);
}

bool has_descriptor(const Driver& driver, CUdeviceptr address) {
  std::uint64_t types = 0;
  return driver.pointer_attribute(&types, kPointerHandleTypes, address) == kSuccess &&
         (types & kHandleDescriptor) != 0;
}

DescriptorSocket::Sent send_descriptors(const Driver& driver, const DescriptorSocket::Address& to,
                                        std::uint32_t slot, std::span<const MappedPart> parts) {
  for (std::size_t first = 0; first < parts.size(); first += DescriptorSocket::most_in_message) {
    const std::size_t count = std::min(DescriptorSocket::most_in_message, parts.size() - first);
    std::vector<MemoryPart> message;
    for (const MappedPart& part : parts.subspan(first, count)) {
      message.push_back({descriptor_of(driver, part), part.bytes});
      if (!message.back().descriptor) return DescriptorSocket::Sent::not_now;
    }
    const DescriptorSocket::Sent sent = DescriptorSocket::send(to, slot, first, message);
    if (sent != DescriptorSocket::Sent::all) return sent;
  }
  return DescriptorSocket::Sent::all;
}

MappedRange::MappedRange(MappedRange&& other) noexcept
    : driver_(other.driver_),
      base_(std::exchange(other.base_, 0)),
      bytes_(other.bytes_),
      mapped_bytes_(other.mapped_bytes_),
      parts_(std::move(other.parts_)) {}

// One mapping at a time: a mapping cannot be unmapped in part, and CUDA does not document unmapping
// several at once.
MappedRange::~MappedRange() {
  if (base_ == 0) return;
  CUdeviceptr address = base_;
  for (const std::size_t part : parts_) {
    driver_->mem_unmap(address, part);
    address += part;
  }
  driver_->mem_unreserve(base_, bytes_);
}

CUresult MappedRange::reserve(std::size_t bytes) {
  bytes_ = bytes;
  const CUresult result = driver_->mem_reserve(&base_, bytes, 0, 0, 0);
  if (result != kSuccess) base_ = 0;
  return result;
}

CUresult MappedRange::map(CUmemGenericAllocationHandle handle, std::size_t bytes) {
  const CUresult result = driver_->mem_map(base_ + mapped_bytes_, bytes, 0, handle, 0);
  if (result != kSuccess) return result;
  parts_.push_back(bytes);
  mapped_bytes_ += bytes;
  return result;
}

CUresult MappedRange::open_for(CUdevice device) {
  const CUmemAccessDesc access{{kLocationDevice, device}, kAccessReadWrite};
  return driver_->mem_set_access(base_, mapped_bytes_, &access, 1);
}

CUdeviceptr MappedRange::let_go() { return std::exchange(base_, 0); }

CUresult import_parts(const Driver& driver, std::span<const MemoryPart> parts, CUdevice device,
                      MappedRange& range) {
  std::size_t bytes = 0;
  for (const MemoryPart& part : parts) bytes += part.bytes;
  CUresult result = range.reserve(bytes);
  for (std::size_t i = 0; result == kSuccess && i < parts.size(); ++i) {
    HeldHandle handle(driver);
    // The API takes the descriptor cast to a pointer.
    void* const shareable =
        reinterpret_cast<void*>(static_cast<std::uintptr_t>(parts[i].descriptor.get()));
    result = driver.mem_import(handle.out(), shareable, kHandleDescriptor);
    if (result == kSuccess) result = range.map(handle.get(), parts[i].bytes);
  }
  return result == kSuccess ? range.open_for(device) : result;
}

CUdeviceptr allocate_exportable(const Driver& driver, CUdevice device, std::size_t bytes) {
  const bool offered = maps_memory(driver) && has_attribute(driver, kDeviceMapsMemory, device) &&
                       has_attribute(driver, kDeviceExportsDescriptors, device);
  if (!offered) return 0;
  const CUmemAllocationProp prop = exportable_on(driver, device);
  std::size_t page = 0;
  if (driver.mem_granularity(&page, &prop, kGranularityMinimum) != kSuccess || page == 0) return 0;
  if (bytes > ~std::size_t{0} - page) return 0;
  const std::size_t whole = (bytes + page - 1) / page * page;
  HeldHandle handle(driver);
  MappedRange range(driver);
  const bool mapped = driver.mem_create(handle.out(), whole, &prop, 0) == kSuccess &&
                      range.reserve(whole) == kSuccess &&
                      range.map(handle.get(), whole) == kSuccess &&
                      range.open_for(device) == kSuccess;
  if (!mapped) return 0;
  open_for_others(driver, range, device);
  return range.let_go();
}

// Only memory mapped by hand has a handle.
bool is_mapped_by_hand(const Driver& driver, CUdeviceptr address) {
  HeldHandle handle(driver);
  return maps_memory(driver) && driver.mem_retain(handle.out(), pointer_to(address)) == kSuccess;
}

CUresult free_exportable(const Driver& driver, CUdeviceptr address) {
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  CUresult result = driver.mem_address_range(&base, &bytes, address);
  if (result == kSuccess && base != address) result = kErrorInvalidValue;
  if (result == kSuccess) result = driver.mem_unmap(address, bytes);
  return result == kSuccess ? driver.mem_unreserve(address, bytes) : result;
}

}  // namespace pith::cuda
