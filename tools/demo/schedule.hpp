// In which order the samples are learnt.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tools/demo/options.hpp"

namespace pith::demo {

// Which samples make up which batch. An epoch drops the samples that fill no global batch.
class Schedule {
 public:
  Schedule(const Options& options, std::size_t train_size);

  std::size_t steps_per_epoch() const { return steps_per_epoch_; }
  std::size_t steps() const { return steps_per_epoch_ * epochs_; }
  float rate(std::size_t step) const;

  // The global batch of `step`, every rank's share one after the other.
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
