// What this device reaches of others: memory of another process, by the driver's handle, and
// devices of this process. Both are made ready by the helper thread; ask whether they are.
// Threads: any, one at a time.
#pragma once

#include <atomic>
#include <memory>

#include "cuda/device.hpp"

namespace pith::cuda {

enum class Reach { pending, open, refused };

// One allocation of another process, mapped from its handle until this is destroyed.
class Imported {
 public:
  Imported(Device& device, const CUipcMemHandle& handle, std::size_t bytes);
  ~Imported();
  Imported(Imported&&) noexcept = default;
  Imported& operator=(Imported&&) = delete;

  Reach reach() const { return mapping_->reach.load(std::memory_order_acquire); }
  // Null where it is not open, or has less than `offset` bytes.
  std::byte* at(std::size_t offset) const;

 private:
  struct Mapping {
    Device& device;
    CUipcMemHandle handle;
    std::size_t bytes;
    CUdeviceptr address = 0;  // once open
    std::atomic<Reach> reach{Reach::pending};

    void open();
    void close();
  };
  std::shared_ptr<Mapping> mapping_;
};

// Lets kernels of `device` touch memory of another context of this process.
std::shared_ptr<std::atomic<Reach>> reach_context(Device& device, CUcontext other);

}  // namespace pith::cuda
