#include "core/compute.hpp"

namespace pith {

struct Compute::Retired : FenceWait {
  Compute* compute = nullptr;
  Lease lease;
  Scratch scratch;
};

Compute::Compute() = default;
Compute::~Compute() = default;

KernelNote Compute::note_of(Implementation implementation, const void* args) const {
  for (std::size_t kernel = 0; kernel < max_kernels; ++kernel) {
    if (table_[kernel] != implementation) continue;
    const detail::Describe describe = detail::kernel_notes[kernel];
    return describe ? describe(args) : KernelNote();
  }
  return {};
}

std::shared_ptr<void> Compute::withhold_scratch(std::byte*, std::size_t) { return nullptr; }

void Compute::retire(Lease lease, Scratch scratch, Fence fence) {
  if (reached(fence)) return;  // the destructors of the arguments release both
  if (spare_retired_.empty()) {
    all_retired_.push_back(std::make_unique<Retired>());
    spare_retired_.reserve(all_retired_.size());  // reached() below must not allocate
    spare_retired_.push_back(all_retired_.back().get());
  }
  Retired& retired = *spare_retired_.back();
  spare_retired_.pop_back();
  retired.compute = this;
  retired.lease = std::move(lease);
  retired.scratch = std::move(scratch);
  retired.FenceWait::fence = fence;
  retired.FenceWait::reached = [](FenceWait& wait) {
    auto& self = static_cast<Retired&>(wait);
    self.lease.release();
    self.scratch = Scratch();
    self.compute->spare_retired_.push_back(&self);
  };
  notify(retired);
}

}  // namespace pith
