// DEFT as its authors run it (kljp/deft), for all ranks at once and element by element. Where their
// code fails, what we do: a tensor with fewer elements than ranks is cut into its elements, pieces
// of which everything is elected count on one rank, too, k is at least one, and the norms that are
// left are added up anew, from the smallest. Of equal norms the first piece comes first, and of
// equal magnitudes the first element.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

namespace pith::test {

class DeftTwin {
 public:
  DeftTwin(std::vector<std::size_t> tensors, int ranks, double density) : ranks_(ranks) {
    std::size_t begin = 0;
    for (const std::size_t size : tensors) n_ += size;
    for (const std::size_t size : tensors) {
      const bool large = size > 0 && double(size) > double(n_) / ranks;
      const std::size_t parts =
          large ? std::min(size, static_cast<std::size_t>(ranks)) : (size > 0 ? 1 : 0);
      for (std::size_t i = 0; i < parts; ++i) {
        const std::size_t part = size / parts + (i < size % parts ? 1 : 0);
        pieces_.push_back({begin, part});
        begin += part;
      }
    }
    k_ = std::max(1.0, std::floor(density * double(n_)));
    residuals.assign(static_cast<std::size_t>(ranks), std::vector<float>(n_));
  }

  std::vector<std::vector<float>> residuals;      // by rank, of all tensors behind each other
  std::vector<std::vector<std::size_t>> elected;  // by rank, without what is common
  std::vector<std::size_t> moved;                 // in order
  std::vector<float> result;

  void run(const std::vector<std::vector<float>>& gradients) {
    const auto ranks = static_cast<std::size_t>(ranks_);
    std::vector<std::vector<double>> shares;
    for (std::size_t r = 0; r < ranks; ++r) {
      for (std::size_t i = 0; i < n_; ++i) residuals[r][i] += gradients[r][i];
      shares.push_back(share(residuals[r]));
    }
    const std::size_t cycle = step_ % ranks;
    const std::vector<std::size_t> bins = pack(shares[cycle]);
    elected.assign(ranks, {});
    moved.clear();
    for (std::size_t p = 0; p < pieces_.size(); ++p) {
      if (bins[p] == ranks) {
        for (std::size_t i = 0; i < pieces_[p].size; ++i) moved.push_back(pieces_[p].begin + i);
      }
      for (std::size_t r = 0; r < ranks; ++r) {
        if ((cycle + r) % ranks != bins[p]) continue;
        for (const std::size_t i : largest(residuals[r], pieces_[p], shares[r][p])) {
          elected[r].push_back(i);
          moved.push_back(i);
        }
      }
    }
    std::sort(moved.begin(), moved.end());
    result.assign(n_, 0);
    for (const std::size_t i : moved) {
      float sum = residuals[0][i];
      for (std::size_t r = 1; r < ranks; ++r) sum += residuals[r][i];
      result[i] = sum;
      for (auto& own : residuals) own[i] = 0;
    }
    ++step_;
  }

 private:
  struct Piece {
    std::size_t begin;
    std::size_t size;
  };

  // How many of each piece a rank would elect.
  std::vector<double> share(const std::vector<float>& values) const {
    std::vector<double> norms;
    for (const Piece& piece : pieces_) {
      double squares = 0;
      for (std::size_t i = 0; i < piece.size; ++i) {
        const double value = values[piece.begin + i];
        squares += value * value;
      }
      norms.push_back(std::sqrt(squares));
    }
    std::vector<double> shares(pieces_.size());
    std::vector<bool> seen(pieces_.size());
    double left = k_;
    for (std::size_t turn = 0; turn < pieces_.size(); ++turn) {
      std::size_t next = pieces_.size();
      for (std::size_t p = 0; p < pieces_.size(); ++p) {
        if (!seen[p] && (next == pieces_.size() || norms[p] > norms[next])) next = p;
      }
      const double norm_left = sum_of_rest(norms, seen);
      seen[next] = true;
      const double part = norm_left > 0 ? std::trunc(left * (norms[next] / norm_left)) : 0;
      const auto size = double(pieces_[next].size);
      shares[next] = size < part ? size : std::max(1.0, part);
      left -= shares[next];
    }
    return shares;
  }

  static double sum_of_rest(const std::vector<double>& norms, const std::vector<bool>& seen) {
    std::vector<double> rest;
    for (std::size_t p = 0; p < norms.size(); ++p) {
      if (!seen[p]) rest.push_back(norms[p]);
    }
    std::sort(rest.begin(), rest.end());
    return std::accumulate(rest.begin(), rest.end(), 0.0);
  }

  // The bin of each piece; one behind the last for what is common.
  std::vector<std::size_t> pack(const std::vector<double>& shares) const {
    std::vector<double> costs;
    for (std::size_t p = 0; p < pieces_.size(); ++p) {
      const auto size = double(pieces_[p].size);
      costs.push_back(shares[p] > 1 ? size * std::log2(shares[p]) : size);
    }
    std::vector<double> loads(static_cast<std::size_t>(ranks_));
    std::vector<std::size_t> bins(pieces_.size());
    for (std::size_t turn = 0; turn < pieces_.size(); ++turn) {
      const auto most = std::max_element(costs.begin(), costs.end());
      const auto least = std::min_element(loads.begin(), loads.end());
      const auto p = static_cast<std::size_t>(most - costs.begin());
      if (shares[p] == double(pieces_[p].size)) {
        bins[p] = loads.size();
      } else {
        bins[p] = static_cast<std::size_t>(least - loads.begin());
        *least += *most;
      }
      *most = -1;
    }
    return bins;
  }

  static std::vector<std::size_t> largest(const std::vector<float>& values, const Piece& piece,
                                          double k) {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < piece.size; ++i) order.push_back(piece.begin + i);
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return std::fabs(values[a]) > std::fabs(values[b]);
    });
    order.resize(static_cast<std::size_t>(k));
    return order;
  }

  int ranks_;
  std::size_t n_ = 0;
  double k_ = 1;
  std::size_t step_ = 0;
  std::vector<Piece> pieces_;
};

}  // namespace pith::test
