// Other memory that this device can reach: memory of another process, by an IPC handle or by
// descriptors of physical memory, and devices of this process. The helper thread maps all of it;
// callers poll the result.
// Threads: any, one at a time.
#pragma once

#include <atomic>
#include <memory>

#include "cuda/device.hpp"
#include "cuda/physical_memory.hpp"

namespace pith::cuda {

enum class Reach { pending, open, refused };

// One allocation of another process, mapped until this object is destroyed.
class Imported {
 public:
  Imported(Device& device, const CUipcMemHandle& handle, std::size_t bytes);
  // Allocation of `parts` parts, whose descriptors arrive at the socket under `key`.
  Imported(Device& device, std::shared_ptr<DescriptorSocket> socket,
           const DescriptorSocket::Key& key, std::size_t parts, std::size_t bytes);
  ~Imported();
  Imported(Imported&&) noexcept = default;
  Imported& operator=(Imported&&) = delete;

  Reach reach() const;
  // Whether to ask the other process for descriptors; true again if they have not come for a while.
  bool asks_for_descriptors();
  // Retries a mapping that is pending.
  void try_again();
  // Null if not open, or if the allocation has fewer than `offset` bytes.
  std::byte* at(std::size_t offset) const;

 private:
  struct Mapping;
  struct ByHandle;
  struct ByDescriptors;

  std::shared_ptr<Mapping> mapping_;
};

// Enables peer access: kernels of `device` may touch memory of another context of this process.
std::shared_ptr<std::atomic<Reach>> reach_context(Device& device, CUcontext other);

}  // namespace pith::cuda
