// The compute seam on host memory: kernels run inline on the submitting thread, so every fence has
// been reached.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "core/compute.hpp"

namespace pith {

class HostCompute final : public Compute {
 public:
  HostCompute();
  ~HostCompute() override;
  HostCompute(const HostCompute&) = delete;
  HostCompute& operator=(const HostCompute&) = delete;

  MemoryKind kind() const override { return MemoryKind::host; }
  bool reached(Fence) const override { return true; }
  void notify(FenceWait& wait) override { wait.reached(wait); }
  bool progress() override { return false; }

  // Pooled by powers of two and aligned to 64 bytes. From 2 MiB on huge pages are advised and
  // faulted in at once, so that no collective takes the page faults.
  std::byte* take_scratch(std::size_t bytes) override;
  void give_scratch(std::byte* scratch, std::size_t bytes) override;

 protected:
  Fence submit(Implementation implementation, const void* args, std::size_t args_bytes,
               std::size_t work_bytes, Fence after) override;

 private:
  std::array<std::vector<std::byte*>, 64> free_;
  std::array<std::size_t, 64> made_{};
};

}  // namespace pith
