// Results of agreements, for ranks that lost their way to the root while it decided. Keeps those of
// communicators that are not over: at least `least`, and more while they are small.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "control/control_messages.hpp"

namespace pith {

class ResultStore {
 public:
  static constexpr std::size_t least = 64;
  static constexpr std::size_t bytes_kept = 256 << 10;
  static constexpr std::size_t dropped_kept = 4096;

  // Null: not known, or dropped.
  const std::string* find(const GatherKey& key) const {
    const auto found = results_.find(key);
    return found == results_.end() ? nullptr : &found->second;
  }
  // Dropped as too old.
  bool was_dropped(const GatherKey& key) const { return dropped_.contains(key); }
  bool is_decided(const GatherKey& key) const { return results_.contains(key) || was_dropped(key); }
  // Oldest first.
  const std::deque<GatherKey>& keys() const { return order_; }

  void keep(const GatherKey& key, std::string_view packed) {
    results_.emplace(key, packed);
    order_.push_back(key);
    bytes_ += packed.size();
    while (order_.size() > least && bytes_ > bytes_kept) drop_oldest();
  }
  void forget(CommKey comm) {
    std::erase_if(results_, [&](const auto& entry) {
      if (entry.first.comm != comm) return false;
      bytes_ -= entry.second.size();
      return true;
    });
    std::erase_if(order_, [&](const GatherKey& key) { return key.comm == comm; });
  }

 private:
  // For good: taking it back from a rank that still has it would push out newer ones.
  void drop_oldest() {
    const GatherKey oldest = order_.front();
    order_.pop_front();
    const auto found = results_.find(oldest);
    bytes_ -= found->second.size();
    results_.erase(found);
    dropped_.insert(oldest);
    dropped_order_.push_back(oldest);
    if (dropped_order_.size() <= dropped_kept) return;
    dropped_.erase(dropped_order_.front());
    dropped_order_.pop_front();
  }

  std::map<GatherKey, std::string> results_;  // packed, as messages
  std::deque<GatherKey> order_;
  std::size_t bytes_ = 0;
  std::set<GatherKey> dropped_;
  std::deque<GatherKey> dropped_order_;
};

}  // namespace pith
