#include "transport/verbs/verbs_memory.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <utility>

#include "transport/socket.hpp"

namespace pith {
namespace {

constexpr int read_and_write = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

const std::byte* page_floor(const std::byte* at) {
  static const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  return at - reinterpret_cast<std::uintptr_t>(at) % page;
}

const std::byte* page_ceiling(const std::byte* at) {
  static const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return page_floor(at + page - 1);
}

}  // namespace

const Error& not_registered() {
  static const Error error(Code::system,
                           "scratch of a CUDA device cannot be registered with the RDMA device; "
                           "with PITH_GPUDIRECT=0 it goes by the host");
  return error;
}

VerbsMemory::VerbsMemory(const VerbsLibrary& verbs,
                         std::span<const std::unique_ptr<VerbsRail>> rails, std::size_t limit)
    : verbs_(verbs), rails_(rails), limit_(limit), regions_(limit == 0 ? 0 : regions_max) {
  static_cast<void>(not_registered());  // where it is needed there may be no memory to make it
  if (limit_ != 0) MemoryEvents::add(*this);
}

VerbsMemory::~VerbsMemory() {
  if (limit_ != 0) MemoryEvents::remove(*this);
  for (VerbsRegion& region : regions_) {
    if (region.begin) give_up(region);
  }
}

std::size_t VerbsMemory::regions() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(regions_, [](const VerbsRegion& one) { return one.begin != nullptr; }));
}

VerbsRegion* VerbsMemory::acquire(const std::byte* data, std::size_t bytes, bool written) {
  if (any_stale_.exchange(false)) sweep();
  VerbsRegion* region = find(0, data, bytes, written);
  if (!region) {
    VerbsRegion made;
    made.begin = page_floor(data);
    made.end = page_ceiling(data + bytes);
    region = add(made, [&](ibv_pd* domain, VerbsRegion& one) {
      void* const at = const_cast<std::byte*>(one.begin);
      ibv_mr* handle = verbs_.reg_mr(domain, at, one.bytes(), read_and_write);
      if (handle || written) return handle;
      one.writable = false;  // it may be read-only
      return verbs_.reg_mr(domain, at, one.bytes(), 0);
    });
  }
  return use(region);
}

VerbsRegion* VerbsMemory::acquire(Scratch& scratch) {
  if (any_stale_.exchange(false)) sweep();
  const Bytes bytes = scratch.bytes();
  VerbsRegion* region = find(scratch.network_memory(), bytes.data, bytes.size, true);
  if (region) return use(region);
  MemoryExporter* const exporter = scratch.exporter();
  if (!exporter) return nullptr;
  const ExportedMemory exported = exporter->export_memory(bytes.data);
  const Descriptor descriptor(exported.descriptor);
  const std::byte* const end = exported.begin + exported.bytes;
  if (!descriptor || bytes.data < exported.begin || bytes.data + bytes.size > end) return nullptr;
  VerbsRegion made;
  made.memory = scratch.network_memory();
  made.begin = exported.begin;
  made.end = end;
  return use(add(made, [&](ibv_pd* domain, const VerbsRegion& one) {
    const auto at = reinterpret_cast<std::uint64_t>(one.begin);
    return verbs_.reg_dmabuf_mr(domain, 0, one.bytes(), at, descriptor.get(), read_and_write);
  }));
}

VerbsRegion* VerbsMemory::use(VerbsRegion* region) {
  if (!region) return nullptr;
  ++region->users;
  region->last_use = ++uses_;
  return region;
}

void VerbsMemory::release(VerbsRegion& region) {
  if (--region.users == 0 && is_stale(region)) give_up(region);
}

void VerbsMemory::revoke(VerbsRegion& region) {
  {
    const std::lock_guard hold(lock_);
    region.stale = true;
  }
  release(region);
}

VerbsRegion* VerbsMemory::find(std::uint64_t memory, const std::byte* data, std::size_t bytes,
                               bool written) {
  const std::lock_guard hold(lock_);
  for (VerbsRegion& region : regions_) {
    if (!region.begin || region.stale || (written && !region.writable)) continue;
    if (region.memory != memory) continue;
    if (region.begin <= data && data + bytes <= region.end) return &region;
  }
  return nullptr;
}

VerbsRegion* VerbsMemory::add(VerbsRegion made, const Register& register_with) {
  const std::size_t bytes = made.bytes();
  if (bytes > limit_) return nullptr;
  while (bytes_ + bytes > limit_) {
    if (!evict_oldest()) return nullptr;
  }
  const auto free = [&] {
    return std::ranges::find_if(regions_, [](const VerbsRegion& one) { return !one.begin; });
  };
  auto place = free();
  if (place == regions_.end()) {
    if (!evict_oldest()) return nullptr;
    place = free();
  }
  while (const int error = enroll(made, register_with)) {
    // The limit on locked memory may be the cause.
    if (error != ENOMEM || !evict_oldest()) return nullptr;
  }
  bytes_ += bytes;
  const std::lock_guard hold(lock_);
  *place = made;
  return &*place;
}

// 0, or an errno.
int VerbsMemory::enroll(VerbsRegion& region, const Register& register_with) {
  region.writable = true;
  for (std::size_t r = 0; r < rails_.size(); ++r) {
    region.handles[r] = register_with(rails_[r]->domain(), region);
    if (region.handles[r]) continue;
    const int error = errno;
    give_back(region.handles);
    return error == 0 ? EIO : error;
  }
  return 0;
}

bool VerbsMemory::is_stale(const VerbsRegion& region) const {
  const std::lock_guard hold(lock_);
  return region.stale;
}

void VerbsMemory::give_back(std::span<ibv_mr*> handles) {
  for (ibv_mr*& handle : handles) {
    if (handle) verbs_.dereg_mr(std::exchange(handle, nullptr));
  }
}

void VerbsMemory::give_up(VerbsRegion& region) {
  give_back(region.handles);
  bytes_ -= region.bytes();
  const std::lock_guard hold(lock_);
  region = VerbsRegion();
}

void VerbsMemory::sweep() {
  for (VerbsRegion& region : regions_) {
    if (region.begin && region.users == 0 && is_stale(region)) give_up(region);
  }
}

bool VerbsMemory::evict_oldest() {
  VerbsRegion* oldest = nullptr;
  for (VerbsRegion& region : regions_) {
    if (!region.begin || region.users != 0) continue;
    if (!oldest || region.last_use < oldest->last_use) oldest = &region;
  }
  if (!oldest) return false;
  give_up(*oldest);
  return true;
}

void VerbsMemory::leaves(const std::byte* data, std::size_t bytes) noexcept {
  const std::lock_guard hold(lock_);
  for (VerbsRegion& region : regions_) {
    if (!region.begin || region.memory != 0) continue;
    if (region.begin >= data + bytes || data >= region.end) continue;
    region.stale = true;
    any_stale_ = true;
  }
}

}  // namespace pith
