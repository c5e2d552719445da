// Which links between the hosts a step of the comparison meets. They change with the steps, not
// with time: a slow scheme meets the same links for the same work as a fast one.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "tools/demo/options.hpp"
#include "tools/demo/schedule.hpp"

namespace pith::demo {

class LinkPlan {
 public:
  LinkPlan(const Options& options, std::size_t train_size)
      : mbit_(options.links_mbit),
        epoch_(Schedule(options, train_size).steps_per_epoch()),
        steps_(options.scheme_steps) {}

  // Whether the step's links are others than the step's before.
  bool begins(std::size_t step) const {
    return step < steps_ && step % epoch_ == 0 && (step == 0 || mbit_.size() > 1);
  }
  double mbit(std::size_t step) const { return mbit_[step / epoch_ % mbit_.size()]; }
  // Over all steps, of a rank that sends so many bytes in each.
  double seconds(double bytes) const {
    double sum = 0.0;
    for (std::size_t step = 0; step < steps_; ++step) sum += 8.0 * bytes / (mbit(step) * 1e6);
    return sum;
  }

 private:
  std::vector<double> mbit_;
  std::size_t epoch_;
  std::size_t steps_;
};

}  // namespace pith::demo
