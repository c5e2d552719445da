// Memory that RDMA devices may read and write: registered once, kept for the next message, and
// given up when the process gives it back to the system or the cache is full. Scratch of CUDA
// devices is registered by a dma-buf, whole allocations at once.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/compute.hpp"
#include "transport/verbs/memory_events.hpp"
#include "transport/verbs/spin_lock.hpp"
#include "transport/verbs/verbs_rail.hpp"

namespace pith {

inline constexpr std::size_t verbs_rails_max = 4;

struct VerbsRegion {
  std::uint64_t memory = 0;          // as Compute::network_memory(); 0: the host's
  const std::byte* begin = nullptr;  // page-aligned, as `end`
  const std::byte* end = nullptr;
  std::array<ibv_mr*, verbs_rails_max> handles{};  // by rail
  int users = 0;
  std::uint64_t last_use = 0;
  bool writable = true;
  bool stale = false;  // its pages are no longer those of the process at that place

  std::size_t bytes() const { return static_cast<std::size_t>(end - begin); }
  std::uint32_t local_key(std::size_t rail) const { return handles[rail]->lkey; }
  std::uint32_t remote_key(std::size_t rail) const { return handles[rail]->rkey; }
};

// What a message of a device's scratch ends with where acquire() finds no registration.
const Error& not_registered();

class VerbsMemory final : public MemoryListener {
 public:
  // `limit`: bytes kept registered; 0: nothing is registered, so that messages go by copies.
  // MemoryEvents must have begun.
  VerbsMemory(const VerbsLibrary& verbs, std::span<const std::unique_ptr<VerbsRail>> rails,
              std::size_t limit);
  ~VerbsMemory();
  VerbsMemory(const VerbsMemory&) = delete;
  VerbsMemory& operator=(const VerbsMemory&) = delete;

  // A registration of at least these bytes, to be given back by release(); null: there is none to
  // be had. The device may write to it if `written`.
  VerbsRegion* acquire(const std::byte* data, std::size_t bytes, bool written);
  // The same for a device's scratch.
  VerbsRegion* acquire(Scratch& scratch);
  void release(VerbsRegion& region);
  // The same, and nobody may write there any more by the keys that peers have got.
  void revoke(VerbsRegion& region);

  void leaves(const std::byte* data, std::size_t bytes) noexcept override;

  // For tests: registrations that exist, and bytes that they cover.
  std::size_t regions() const;
  std::size_t bytes() const { return bytes_; }

 private:
  static constexpr std::size_t regions_max = 1024;

  // Registers the region with one rail; null: its device refuses.
  using Register = std::function<ibv_mr*(ibv_pd* domain, VerbsRegion& region)>;
  VerbsRegion* use(VerbsRegion* region);
  VerbsRegion* find(std::uint64_t memory, const std::byte* data, std::size_t bytes, bool written);
  VerbsRegion* add(VerbsRegion made, const Register& register_with);
  int enroll(VerbsRegion& region, const Register& register_with);
  bool is_stale(const VerbsRegion& region) const;
  void give_back(std::span<ibv_mr*> handles);
  void give_up(VerbsRegion& region);
  void sweep();
  bool evict_oldest();

  const VerbsLibrary& verbs_;
  const std::span<const std::unique_ptr<VerbsRail>> rails_;
  const std::size_t limit_;
  std::size_t bytes_ = 0;
  std::uint64_t uses_ = 0;
  // `begin`, `end` and `stale` change under the lock, for leaves() reads them in other threads.
  mutable SpinLock lock_;
  std::vector<VerbsRegion> regions_;  // of regions_max; begin is null where there is none
  std::atomic<bool> any_stale_{false};
};

}  // namespace pith
