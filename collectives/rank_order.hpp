// The order in which a communicator's algorithms walk its ranks, so that neighbours in a ring and
// subtrees of a tree are close to each other: a permutation, the same on all ranks.
//
// Algorithms call the places in this order ranks. The caller's buffers and roots go by the
// communicator's ranks.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace pith {

class RankOrder {
 public:
  RankOrder() = default;  // by rank
  // `ranks`: the communicator's rank at each place; each of 0, 1, ... once.
  explicit RankOrder(std::vector<int> ranks) : ranks_(std::move(ranks)), places_(ranks_.size()) {
    bool by_rank = true;
    for (std::size_t place = 0; place < ranks_.size(); ++place) {
      const int here = static_cast<int>(place);
      places_[static_cast<std::size_t>(ranks_[place])] = here;
      by_rank = by_rank && ranks_[place] == here;
    }
    if (by_rank) ranks_.clear();
  }

  bool by_rank() const { return ranks_.empty(); }
  int rank_at(int place) const {
    return by_rank() ? place : ranks_[static_cast<std::size_t>(place)];
  }
  int place_of(int rank) const {
    return by_rank() ? rank : places_[static_cast<std::size_t>(rank)];
  }
  std::span<const int> ranks() const { return ranks_; }  // empty: by rank
  // Brings an array with an entry for every rank into this order.
  template <class T>
  std::vector<T> arrange(std::span<const T> by_rank) const {
    std::vector<T> arranged;
    for (std::size_t place = 0; place < by_rank.size(); ++place) {
      const int rank = rank_at(static_cast<int>(place));
      arranged.push_back(by_rank[static_cast<std::size_t>(rank)]);
    }
    return arranged;
  }

 private:
  std::vector<int> ranks_;  // empty: by rank
  std::vector<int> places_;
};

inline const RankOrder order_by_rank;

}  // namespace pith
