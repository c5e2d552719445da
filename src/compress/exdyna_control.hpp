// The state of one vector in ExDyna and MiCRO: its partitions, its threshold, and what the current
// call has learned about both. Equal on all ranks, since it depends only on agreed numbers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "compress/exdyna_partition.hpp"
#include "compress/exdyna_threshold.hpp"

namespace pith {

class ExdynaControl {
 public:
  // Starts a call; count > 0. Discards what an unfinished call has learned.
  void begin(const Spec& spec, std::size_t count, int ranks) {
    k_ = elected_of(spec.density, count);
    const Partition kind = partition_of(spec);
    partition_.fit(kind, count, ranks);
    threshold_.begin(rule_of(spec));
    if (rule_of(spec) != Rule::quantile && !threshold_.known()) threshold_.start(k_);
    by_partition_.assign(static_cast<std::size_t>(ranks), 0);
    by_block_.assign(kind == Partition::prefix ? partition_.blocks() : 0, 0);
    own_levels = {};
    levels_ = {};
    own_is_added = false;
  }

  std::size_t k() const { return k_; }
  const ExdynaPartition& partition() const { return partition_; }
  ExdynaThreshold& threshold() { return threshold_; }
  const ExdynaThreshold& threshold() const { return threshold_; }
  // The partition that a rank owns in a step.
  static std::size_t owned(std::uint64_t step, std::size_t rank, std::size_t ranks) {
    return static_cast<std::size_t>((step % ranks + rank) % ranks);
  }
  // The authors elect one element, number `step` mod its length, of a partition that has none above
  // the threshold.
  bool has_dummy() const { return threshold_.rule() != Rule::quantile; }
  // The number of elements an owner may elect, so that the total stays below three times the target
  // while the threshold is too low. The owner keeps its largest.
  std::size_t most(std::size_t partition) const {
    if (has_dummy()) return ~std::size_t{0};
    constexpr double excess = 2.5;
    const double even = 1.0 / static_cast<double>(partition_.ranks());
    const double share = 0.2 * even + 0.8 * partition_.share(partition);
    return std::max<std::size_t>(1, static_cast<std::size_t>(excess * share * double(k_)));
  }

  // Counts the elements elected in a partition; in any order.
  void count(std::size_t partition, std::span<const std::uint32_t> indices) {
    by_partition_[partition] += indices.size();
    if (by_block_.empty()) return;
    for (const std::uint32_t index : indices) ++by_block_[partition_.block_of(index)];
  }
  MagnitudeLevels own_levels;  // of this rank's partition
  bool own_is_added = false;   // the gradient was already added during the measurement
  // The levels of the other ranks' partitions.
  MagnitudeLevels& levels() { return levels_; }
  std::uint64_t elected() const {
    return std::accumulate(by_partition_.begin(), by_partition_.end(), std::uint64_t{0});
  }
  // N max k_i / sum k_i.
  double imbalance() const {
    const std::uint64_t all = elected();
    if (all == 0) return 1;
    const std::uint64_t most = *std::max_element(by_partition_.begin(), by_partition_.end());
    return static_cast<double>(most * by_partition_.size()) / static_cast<double>(all);
  }
  std::span<const std::uint64_t> by_partition() const { return by_partition_; }

  struct State {
    ExdynaPartition::State partition;
    ExdynaThreshold::State threshold;
  };
  State state() const { return {partition_.state(), threshold_.state()}; }
  // Restores a vector of `count` elements; ignores what belongs to another number of ranks.
  void restore(const Spec& spec, std::size_t count, int ranks, const State& state) {
    begin(spec, count, ranks);
    partition_.restore(state.partition);
    threshold_.restore(state.threshold);
  }
  void scale(double factor) { threshold_.scale(factor); }
  // The call has succeeded: computes the next partitions and threshold.
  void follow() {
    for (std::size_t i = 0; i < MagnitudeLevels::size; ++i) {
      levels_.counts[i] += own_levels.counts[i];
    }
    threshold_.follow(elected(), levels_, k_);
    partition_.follow(by_partition_, by_block_);
  }

 private:
  std::size_t k_ = 0;
  ExdynaPartition partition_;
  ExdynaThreshold threshold_;
  std::vector<std::uint64_t> by_partition_;
  std::vector<std::uint32_t> by_block_;
  MagnitudeLevels levels_;
};

}  // namespace pith
