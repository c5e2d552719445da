// Which ranks of a communicator run on one host, for calls that work inside hosts first. The same
// on all ranks. Ranks are places in the communicator's order (rank_order.hpp); hosts are numbered
// in the order of their first ranks.
//
// Work for a host is divided by slices of the vector: rank i of a host owns slice i. There are as
// many slices as the smallest host has ranks, so that every host has an owner of each slice. The
// other ranks of larger hosts only contribute and receive.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/mix.hpp"

namespace pith {

class Hosts {
 public:
  Hosts() = default;
  // `names`: one per rank, in order; equal for ranks that run on one host.
  template <class Name>
  explicit Hosts(std::span<const Name> names) {
    std::vector<Name> known;
    for (const Name& name : names) {
      const auto found = std::find(known.begin(), known.end(), name);
      const auto host = static_cast<std::size_t>(found - known.begin());
      if (found == known.end()) {
        known.push_back(name);
        ranks_.emplace_back();
      }
      host_of_.push_back(static_cast<int>(host));
      index_of_.push_back(static_cast<int>(ranks_[host].size()));
      ranks_[host].push_back(static_cast<int>(host_of_.size()) - 1);
      key_ = mix(key_, host);
    }
    slices_ = ranks_.empty() ? 0 : ranks_.front().size();
    for (const auto& ranks : ranks_) {
      slices_ = std::min(slices_, ranks.size());
      most_ranks_ = std::max(most_ranks_, ranks.size());
    }
    if (key_ == 0) key_ = 1;
  }

  int count() const { return static_cast<int>(ranks_.size()); }
  // Whether every rank has a host of its own.
  bool alone() const { return ranks_.size() == host_of_.size(); }
  // Whether there are several, and one of them has several ranks.
  bool share_ranks() const { return count() > 1 && !alone(); }
  int slices() const { return static_cast<int>(slices_); }
  // Of one host.
  int most_ranks() const { return static_cast<int>(most_ranks_); }
  int host_of(int rank) const { return host_of_[static_cast<std::size_t>(rank)]; }
  // The rank's number among the ranks of its host.
  int index_of(int rank) const { return index_of_[static_cast<std::size_t>(rank)]; }
  std::span<const int> ranks_of(int host) const { return ranks_[static_cast<std::size_t>(host)]; }
  // The rank that owns a slice on a host.
  int owner(int host, int slice) const { return ranks_of(host)[static_cast<std::size_t>(slice)]; }
  // The rank that carries a column on a host: the blocks of the ranks of that index on all hosts.
  int carrier(int host, int column) const {
    const std::span<const int> ranks = ranks_of(host);
    return ranks[static_cast<std::size_t>(column) % ranks.size()];
  }
  // A hash of the layout; never 0.
  std::uint64_t key() const { return key_; }

 private:
  std::vector<std::vector<int>> ranks_;  // by host
  std::vector<int> host_of_;
  std::vector<int> index_of_;
  std::size_t slices_ = 0;
  std::size_t most_ranks_ = 0;
  std::uint64_t key_ = 0x686f737473;
};

}  // namespace pith
