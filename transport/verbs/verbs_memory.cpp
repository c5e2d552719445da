#include "transport/verbs/verbs_memory.hpp"

#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <utility>

namespace pith {
namespace {

const std::byte* page_floor(const std::byte* at) {
  static const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  return at - reinterpret_cast<std::uintptr_t>(at) % page;
}

const std::byte* page_ceiling(const std::byte* at) {
  static const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return page_floor(at + page - 1);
}

}  // namespace

VerbsMemory::VerbsMemory(const VerbsLibrary& verbs,
                         std::span<const std::unique_ptr<VerbsRail>> rails, std::size_t limit)
    : verbs_(verbs), rails_(rails), limit_(limit), regions_(limit == 0 ? 0 : regions_max) {
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
  VerbsRegion* region = find(data, bytes, written);
  if (!region) region = add(page_floor(data), page_ceiling(data + bytes), written);
  if (!region) return nullptr;
  ++region->users;
  region->last_use = ++uses_;
  return region;
}

void VerbsMemory::release(VerbsRegion& region) {
  if (--region.users == 0 && region.stale) give_up(region);
}

void VerbsMemory::revoke(VerbsRegion& region) {
  {
    const std::lock_guard hold(lock_);
    region.stale = true;
  }
  release(region);
}

VerbsRegion* VerbsMemory::find(const std::byte* data, std::size_t bytes, bool written) {
  const std::lock_guard hold(lock_);
  for (VerbsRegion& region : regions_) {
    if (!region.begin || region.stale || (written && !region.writable)) continue;
    if (region.begin <= data && data + bytes <= region.end) return &region;
  }
  return nullptr;
}

VerbsRegion* VerbsMemory::add(const std::byte* begin, const std::byte* end, bool written) {
  const auto bytes = static_cast<std::size_t>(end - begin);
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
  VerbsRegion made;
  made.begin = begin;
  made.end = end;
  while (!enroll(made, written)) {
    if (!evict_oldest()) return nullptr;  // the limit on locked memory may be the cause
  }
  bytes_ += bytes;
  const std::lock_guard hold(lock_);
  *place = made;
  return &*place;
}

bool VerbsMemory::enroll(VerbsRegion& region, bool written) {
  const auto bytes = static_cast<std::size_t>(region.end - region.begin);
  for (std::size_t r = 0; r < rails_.size(); ++r) {
    void* data = const_cast<std::byte*>(region.begin);
    constexpr int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    ibv_mr*& handle = region.handles[r];
    handle = verbs_.reg_mr(rails_[r]->domain(), data, bytes, all);
    if (!handle && !written) {  // it may be read-only
      handle = verbs_.reg_mr(rails_[r]->domain(), data, bytes, 0);
      region.writable = false;
    }
    if (handle) continue;
    while (r-- > 0) verbs_.dereg_mr(std::exchange(region.handles[r], nullptr));
    return false;
  }
  return true;
}

void VerbsMemory::give_up(VerbsRegion& region) {
  for (ibv_mr* handle : region.handles) {
    if (handle) verbs_.dereg_mr(handle);
  }
  bytes_ -= static_cast<std::size_t>(region.end - region.begin);
  const std::lock_guard hold(lock_);
  region = VerbsRegion();
}

void VerbsMemory::sweep() {
  for (VerbsRegion& region : regions_) {
    if (region.begin && region.stale && region.users == 0) give_up(region);
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
    if (!region.begin || region.begin >= data + bytes || data >= region.end) continue;
    region.stale = true;
    any_stale_ = true;
  }
}

}  // namespace pith
