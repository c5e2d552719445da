#include "compress/exdyna_partition.hpp"

#include <algorithm>
#include <numeric>

namespace pith {

namespace {

constexpr std::size_t least_blocks = 1024;
constexpr std::size_t block_alignment = 32;
constexpr double memory = 0.9;  // decay of the running means

std::size_t blocks_for(std::size_t ranks) { return std::max(least_blocks, 4 * ranks); }

// The first count initialises the mean.
void follow_mean(double& mean, double count, bool first) {
  mean = first ? count : memory * mean + (1 - memory) * count;
}

}  // namespace

void ExdynaPartition::fit(Kind kind, std::size_t count, int ranks) {
  if (kind_ == kind && count_ == count && fits(ranks)) return;
  const bool same_vector = kind_ == kind && count_ == count;
  kind_ = kind;
  count_ = count;
  const std::size_t blocks_before = blocks_;
  lay_out_blocks(ranks);
  if (!same_vector || blocks_before != blocks_) block_means_.clear();
  partition_means_.clear();
  cut_evenly(static_cast<std::size_t>(ranks));
}

void ExdynaPartition::lay_out_blocks(int ranks) {
  const std::size_t most = blocks_for(static_cast<std::size_t>(ranks));
  if (kind_ == Kind::neighbour) {
    blocks_ = most;
    block_size_ = count_ / most - count_ / most % block_alignment;
    return;
  }
  block_size_ = (count_ + most - 1) / most;
  if (block_size_ > block_alignment) {
    block_size_ = (block_size_ + block_alignment - 1) / block_alignment * block_alignment;
  }
  blocks_ = (count_ + block_size_ - 1) / block_size_;
}

void ExdynaPartition::cut_evenly(std::size_t ranks) {
  cuts_.resize(ranks + 1);
  starts_.resize(ranks + 1);
  const std::size_t base = blocks_ / ranks;
  const std::size_t longer = blocks_ % ranks;
  for (std::size_t i = 0; i <= ranks; ++i) {
    cuts_[i] = static_cast<std::uint32_t>(i * base + std::min(i, longer));
  }
  shares_.assign(ranks, 1.0 / static_cast<double>(ranks));
  if (kind_ == Kind::prefix && !block_means_.empty()) cut_by_prefix();
  place();
}

// Computes the partitions' first elements from their blocks.
void ExdynaPartition::place() {
  const std::size_t n = ranks();
  for (std::size_t i = 0; i < n; ++i) {
    starts_[i] = kind_ == Kind::slices ? i * (count_ / n) + std::min(i, count_ % n)
                                       : std::min(cuts_[i] * block_size_, count_);
  }
  starts_[n] = count_;
}

void ExdynaPartition::follow(std::span<const std::uint64_t> by_partition,
                             std::span<const std::uint32_t> by_block) {
  const std::size_t n = ranks();
  const bool first = partition_means_.empty();
  partition_means_.resize(n);
  for (std::size_t i = 0; i < n; ++i) {
    follow_mean(partition_means_[i], static_cast<double>(by_partition[i]), first);
  }
  if (kind_ == Kind::prefix) {
    const bool unknown = block_means_.empty();
    block_means_.resize(blocks_);
    for (std::size_t b = 0; b < blocks_; ++b) follow_mean(block_means_[b], by_block[b], unknown);
    cut_by_prefix();
  } else {
    expect();
    if (kind_ == Kind::neighbour) trade(by_partition);
  }
  place();
}

// Computes expected shares from what partitions have elected.
void ExdynaPartition::expect() {
  const double all = std::accumulate(partition_means_.begin(), partition_means_.end(), 0.0);
  const auto n = static_cast<double>(ranks());
  for (std::size_t i = 0; i < ranks(); ++i) {
    shares_[i] = all > 0 ? partition_means_[i] / all : 1 / n;
  }
}

void ExdynaPartition::cut_by_prefix() {
  const double all = std::accumulate(block_means_.begin(), block_means_.end(), 0.0);
  if (!(all > 0)) return;
  const std::size_t n = ranks();
  double sum = 0;
  std::size_t block = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double before = sum;
    cuts_[i] = static_cast<std::uint32_t>(block);
    const double goal = all * static_cast<double>(i + 1) / static_cast<double>(n);
    // A block belongs to the partition that contains its middle.
    while (block < blocks_ && (i + 1 == n || sum + block_means_[block] / 2 < goal)) {
      sum += block_means_[block++];
    }
    shares_[i] = (sum - before) / all;
  }
  cuts_[n] = static_cast<std::uint32_t>(blocks_);
}

// The authors' sweep from left to right; counts are adjusted after each move.
void ExdynaPartition::trade(std::span<const std::uint64_t> by_partition) {
  constexpr double above = 1.05;
  constexpr double below = 0.95238;
  const std::size_t n = ranks();
  const std::uint64_t all =
      std::accumulate(by_partition.begin(), by_partition.end(), std::uint64_t{0});
  const std::uint64_t whole_mean = all / n;
  if (whole_mean == 0) return;  // fewer elected than ranks: the authors' code divides by zero here
  const auto mean = static_cast<double>(whole_mean);
  const double density = static_cast<double>(all) / static_cast<double>(count_);
  const auto moved = static_cast<std::int64_t>(static_cast<double>(block_size_) * density);
  const double floor = static_cast<double>(blocks_) / static_cast<double>(4 * n);
  traded_.assign(by_partition.begin(), by_partition.end());
  const auto length = [&](std::size_t i) { return static_cast<double>(cuts_[i + 1] - cuts_[i]); };
  for (std::size_t i = 0; i + 1 < n; ++i) {
    const double left = static_cast<double>(traded_[i]) / mean;
    const double right = static_cast<double>(traded_[i + 1]) / mean;
    if (left > above && right < below && length(i) - 1 >= floor) {
      --cuts_[i + 1];
      traded_[i] -= moved;
      traded_[i + 1] += moved;
    }
    if (left < below && right > above && length(i + 1) - 1 >= floor) {
      ++cuts_[i + 1];
      traded_[i] += moved;
      traded_[i + 1] -= moved;
    }
  }
}

void ExdynaPartition::restore(const State& state) {
  if (state.block_means.size() == blocks_) block_means_ = state.block_means;
  if (state.cuts.size() == cuts_.size()) {
    cuts_ = state.cuts;
    partition_means_ = state.partition_means;
    if (kind_ != Kind::prefix && !partition_means_.empty()) expect();
  }
  if (kind_ == Kind::prefix && !block_means_.empty()) cut_by_prefix();
  place();
}

}  // namespace pith
