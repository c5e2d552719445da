#include "transport/sim/sim_compute.hpp"

#include <algorithm>

namespace pith {

Fence SimCompute::submit(Implementation implementation, const void* args, std::size_t args_bytes,
                         std::size_t work_bytes, Fence after) {
  const SimConfig& config = world_.config();
  const double seconds =
      config.kernel_s + config.gamma_s_per_byte * static_cast<double>(work_bytes);
  const SimTime earliest = after.ticket == 0 ? 0 : after.ticket - 1;
  free_ = std::max({world_.now(), free_, earliest}) + sim_time(seconds);
  if (!config.late_kernels || (free_ == world_.now() && late_begin_ == late_.size())) {
    implementation(args);
  } else {
    const auto* bytes = static_cast<const std::byte*>(args);
    late_.push_back({free_, implementation, {bytes, bytes + args_bytes}});
    wake_at(free_);
  }
  return {free_ + 1};
}

void SimCompute::wake_at(SimTime time) {
  world_.schedule(
      time,
      [](void* object) {
        auto& self = *static_cast<SimCompute*>(object);
        if (self.world_.runs(self.rank_)) self.progress();
      },
      this);
}

void SimCompute::run_late() {
  while (late_begin_ < late_.size() && late_[late_begin_].end <= world_.now()) {
    const Late& kernel = late_[late_begin_];
    kernel.implementation(kernel.args.data());
    ++late_begin_;
  }
  if (late_begin_ == late_.size()) {
    late_.clear();
    late_begin_ = 0;
  }
}

void SimCompute::notify(FenceWait& wait) {
  wait.next = nullptr;
  FenceWait** end = &waits_;
  while (*end) end = &(*end)->next;
  *end = &wait;
  wake_at(wait.fence.ticket - 1);
}

bool SimCompute::progress() {
  run_late();
  bool any = false;
  for (FenceWait** at = &waits_; *at;) {
    FenceWait& wait = **at;
    if (!reached(wait.fence)) {
      at = &wait.next;
      continue;
    }
    *at = wait.next;
    wait.reached(wait);  // may start operations and add waits, at the end of the list
    any = true;
  }
  return any;
}

}  // namespace pith
