// The order in which samples are used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tools/demo/options.hpp"

namespace pith::demo {

// The samples of each batch. Samples that do not fill a global batch are dropped from the epoch.
class Schedule {
 public:
  Schedule(const Options& options, std::size_t train_size);

  std::size_t steps_per_epoch() const { return steps_per_epoch_; }
  std::size_t steps() const { return steps_per_epoch_ * epochs_; }
  float rate(std::size_t step) const;

  // The global batch of `step`: all ranks' shares in rank order.
  std::span<const std::size_t> global_batch(std::size_t step);
  std::span<const std::size_t> share(std::size_t step, int rank);

 private:
  std::size_t train_size_;
  std::size_t batch_;
  std::size_t global_;
  std::size_t epochs_;
  std::size_t steps_per_epoch_;
  std::uint64_t seed_;
  float first_rate_;
  std::size_t shuffled_epoch_ = SIZE_MAX;
  std::vector<std::size_t> order_;
};

}  // namespace pith::demo
