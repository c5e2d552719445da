// What this device reaches of others: memory of another process, by the driver's IPC handle or by
// descriptors of the physical memory, and devices of this process. All are made ready by the helper
// thread; ask whether they are.
// Threads: any, one at a time.
#pragma once

#include <atomic>
#include <memory>

#include "cuda/device.hpp"
#include "cuda/physical_memory.hpp"

namespace pith::cuda {

enum class Reach { pending, open, refused };

// One allocation of another process, mapped until this is destroyed.
class Imported {
 public:
  Imported(Device& device, const CUipcMemHandle& handle, std::size_t bytes);
  // Of so many parts, whose descriptors come to the socket.
  Imported(Device& device, std::shared_ptr<DescriptorSocket> socket,
           const DescriptorSocket::Key& key, std::size_t parts, std::size_t bytes);
  ~Imported();
  Imported(Imported&&) noexcept = default;
  Imported& operator=(Imported&&) = delete;

  Reach reach() const;
  // Whether the other process is to send descriptors: again, where they do not come for a while.
  bool asks_for_descriptors();
  // What could not be mapped yet may be mapped now.
  void try_again();
  // Null where it is not open, or has less than `offset` bytes.
  std::byte* at(std::size_t offset) const;

 private:
  struct Mapping;
  struct ByHandle;
  struct ByDescriptors;

  std::shared_ptr<Mapping> mapping_;
};

// Lets kernels of `device` touch memory of another context of this process.
std::shared_ptr<std::atomic<Reach>> reach_context(Device& device, CUcontext other);

}  // namespace pith::cuda
