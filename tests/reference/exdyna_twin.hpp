// ExDyna as its authors run it (kljp/exdyna), for all ranks at once and element by element: what
// rules `released` and `intended` must do. Where their code fails, what we do: a partition without
// elements elects nothing, and blocks are not traded while fewer are elected than there are ranks.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pith::test {

class ExdynaTwin {
 public:
  ExdynaTwin(std::size_t count, int ranks, double density, bool intended, bool slices)
      : n_(count), ranks_(ranks), intended_(intended), slices_(slices) {
    k_ = static_cast<long>(density * static_cast<double>(count));
    if (k_ < 1) k_ = 1;
    lambda = 1.0 / (2.0 * std::sqrt(static_cast<double>(k_)));
    blocks_ = ranks <= 256 ? 1024 : 4 * ranks;
    const long a = static_cast<long>(count) / blocks_;
    block_size_ = a - a % 32;
    for (int i = 0; i < ranks; ++i) {
      lengths_.push_back(blocks_ / ranks + (i < blocks_ % ranks ? 1 : 0));
      positions_.push_back(i == 0 ? 0
                                  : positions_.back() + lengths_[static_cast<std::size_t>(i) - 1]);
    }
    residuals.assign(static_cast<std::size_t>(ranks), std::vector<float>(count));
  }

  double lambda;
  std::vector<std::vector<float>> residuals;  // by rank
  std::vector<long> counts;                   // by partition
  std::vector<std::size_t> elected;
  std::vector<float> result;

  // First element of a partition, and one behind its last.
  std::size_t begin(int partition) const {
    if (slices_) {
      const long base = static_cast<long>(n_) / ranks_;
      const long longer = static_cast<long>(n_) % ranks_;
      return static_cast<std::size_t>(partition * base + (partition < longer ? partition : longer));
    }
    return static_cast<std::size_t>(positions_[static_cast<std::size_t>(partition)] * block_size_);
  }
  std::size_t end(int partition) const {
    return partition + 1 == ranks_ ? n_ : begin(partition + 1);
  }

  // Partitions and threshold of the next step.
  void prepare() {
    if (step_ == 0) return;
    if (!slices_) rebalance();
    const double q = static_cast<double>(total()) / static_cast<double>(k_);
    if (q > 1.1) {
      lambda *= 1.005;
    } else if (q > 0.909) {
      lambda *= q > (intended_ ? 1.0 : 0.0) ? 1.00125 : 0.9987;
    } else {
      lambda *= 0.995;
    }
  }

  void run(const std::vector<const std::vector<float>*>& gradients) {
    for (std::size_t r = 0; r < residuals.size(); ++r) {
      for (std::size_t i = 0; i < n_; ++i) residuals[r][i] += (*gradients[r])[i];
    }
    counts.assign(static_cast<std::size_t>(ranks_), 0);
    elected.clear();
    for (int p = 0; p < ranks_; ++p) elect(p);
    result.assign(n_, 0);
    for (const std::size_t i : elected) {
      float sum = residuals[0][i];
      for (int r = 1; r < ranks_; ++r) sum += residuals[static_cast<std::size_t>(r)][i];
      result[i] = sum;
      for (auto& own : residuals) own[i] = 0;
    }
    ++step_;
  }

 private:
  long total() const {
    long all = 0;
    for (const long k : counts) all += k;
    return all;
  }

  void elect(int partition) {
    const auto owner = static_cast<std::size_t>((partition + ranks_ - step_ % ranks_) % ranks_);
    long& count = counts[static_cast<std::size_t>(partition)];
    for (std::size_t i = begin(partition); i < end(partition); ++i) {
      if (!(std::fabs(residuals[owner][i]) >= static_cast<float>(lambda))) continue;
      elected.push_back(i);
      ++count;
    }
    const std::size_t length = end(partition) - begin(partition);
    if (count > 0 || length == 0) return;
    elected.push_back(begin(partition) + static_cast<std::size_t>(step_) % length);
    ++count;
  }

  void rebalance() {
    std::vector<long> k = counts;
    const long mean = total() / ranks_;
    if (mean == 0) return;
    const double density = static_cast<double>(total()) / static_cast<double>(n_);
    const double least = static_cast<double>(blocks_) / (4.0 * ranks_);
    const long moved = static_cast<long>(static_cast<double>(block_size_) * density);
    for (std::size_t i = 0; i + 1 < k.size(); ++i) {
      const double a = static_cast<double>(k[i]) / static_cast<double>(mean);
      const double b = static_cast<double>(k[i + 1]) / static_cast<double>(mean);
      if (a > 1.05 && b < 0.95238) {
        if (static_cast<double>(lengths_[i] - 1) < least) continue;
        --lengths_[i];
        ++lengths_[i + 1];
        --positions_[i + 1];
        k[i] -= moved;
        k[i + 1] += moved;
      }
      if (a < 0.95238 && b > 1.05) {
        if (static_cast<double>(lengths_[i + 1] - 1) < least) continue;
        ++lengths_[i];
        --lengths_[i + 1];
        ++positions_[i + 1];
        k[i] += moved;
        k[i + 1] -= moved;
      }
    }
  }

  std::size_t n_;
  int ranks_;
  bool intended_;
  bool slices_;
  long k_;
  long blocks_;
  long block_size_;
  int step_ = 0;
  std::vector<long> lengths_;    // blocks
  std::vector<long> positions_;  // first blocks
};

}  // namespace pith::test
