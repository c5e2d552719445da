#include "tools/demo/schedule.hpp"

#include "tools/demo/dataset.hpp"

namespace pith::demo {

Schedule::Schedule(const Options& options, std::size_t train_size)
    : train_size_(train_size),
      batch_(options.batch),
      global_(options.batch * static_cast<std::size_t>(options.ranks)),
      epochs_(options.epochs),
      steps_per_epoch_(train_size / global_),
      seed_(options.seed),
      first_rate_(options.rate) {}

float Schedule::rate(std::size_t step) const {
  return first_rate_ * (1.0F - static_cast<float>(step) / static_cast<float>(steps()));
}

std::span<const std::size_t> Schedule::global_batch(std::size_t step) {
  const std::size_t epoch = step / steps_per_epoch_;
  if (epoch != shuffled_epoch_) {
    order_ = shuffled(train_size_, seed_ + 1 + epoch);
    shuffled_epoch_ = epoch;
  }
  return std::span<const std::size_t>(order_).subspan(step % steps_per_epoch_ * global_, global_);
}

std::span<const std::size_t> Schedule::share(std::size_t step, int rank) {
  return global_batch(step).subspan(static_cast<std::size_t>(rank) * batch_, batch_);
}

}  // namespace pith::demo
