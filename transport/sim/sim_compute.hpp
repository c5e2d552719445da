// One rank's virtual core: kernels compute real results on host memory and take virtual time,
// kernel_s + gamma_s_per_byte * work_bytes each, one after the other.
//
// The kernels are those of another Compute, which also lends its scratch memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/compute.hpp"
#include "transport/sim/sim.hpp"

namespace pith {

class SimCompute final : public Compute {
 public:
  SimCompute(SimWorld& world, int rank, Compute& kernels)
      : world_(world), rank_(rank), kernels_(kernels) {
    adopt_kernels(kernels);
  }

  MemoryKind kind() const override { return MemoryKind::host; }
  bool reached(Fence fence) const override { return fence.ticket <= past(); }
  void notify(FenceWait& wait) override;
  bool progress() override;

  std::byte* take_scratch(std::size_t bytes) override {
    std::byte* scratch = kernels_.take_scratch(bytes);
    ++scratch_taken_;
    return scratch;
  }
  void give_scratch(std::byte* scratch, std::size_t bytes) override {
    --scratch_taken_;
    kernels_.give_scratch(scratch, bytes);
  }

  // Buffers that were taken and not returned.
  std::size_t scratch_taken() const { return scratch_taken_; }
  // When the last kernel submitted so far ends.
  SimTime free_at() const { return free_; }

 protected:
  Fence submit(Implementation implementation, const void* args, std::size_t args_bytes,
               std::size_t work_bytes, Fence after) override;

 private:
  struct Late {
    SimTime end;
    Implementation implementation;
    std::vector<std::byte> args;
  };

  // A ticket is the kernel's end plus one, so that zero is always in the past. Two kernels may end
  // at one time: no fence of that time is reached before both have run.
  std::uint64_t past() const {
    const SimTime now = world_.now();
    return late_begin_ < late_.size() ? std::min(now + 1, late_[late_begin_].end) : now + 1;
  }
  void run_late();
  void wake_at(SimTime time);

  SimWorld& world_;
  int rank_;
  Compute& kernels_;
  SimTime free_ = 0;
  FenceWait* waits_ = nullptr;
  // Kernels that run late and have not ended: a queue from late_begin_ on.
  std::vector<Late> late_;
  std::size_t late_begin_ = 0;
  std::size_t scratch_taken_ = 0;
};

}  // namespace pith
