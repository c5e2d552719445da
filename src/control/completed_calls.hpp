// Counts the calls that have ended well without a gap, whatever the order in which they end.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "core/call_number.hpp"

namespace pith {

class CompletedCalls {
 public:
  // Starts as if `count` calls had ended.
  explicit CompletedCalls(std::uint64_t count = 0) : count_(count), next_(call_number(count + 1)) {
    beyond_.reserve(16);
  }

  // All calls up to this one, counted from 1, have ended well; 0: none. Any thread.
  std::uint64_t count() const { return count_.load(std::memory_order_acquire); }

  // The call of this number has ended well. One thread at a time.
  void add(std::uint32_t number) {
    if (number != next_) {
      const std::uint64_t nth = nth_of(number);
      return nth != 0 ? keep(nth) : void();
    }
    std::uint64_t count = count_.load(std::memory_order_relaxed) + 1;
    next_ = next_number(number);
    if (!beyond_.empty() && beyond_.front().first == count + 1) {
      count = beyond_.front().last;
      next_ = call_number(count + 1);
      beyond_.erase(beyond_.begin());
    }
    count_.store(count, std::memory_order_release);
  }

 private:
  // Calls that ended before an earlier one. There are at most as many ranges as calls run at once,
  // because calls of one stream end in order.
  struct Range {
    std::uint64_t first;
    std::uint64_t last;
  };

  // The call's position, counted from 1; 0: already counted.
  std::uint64_t nth_of(std::uint32_t number) const {
    const std::uint64_t count = count_.load(std::memory_order_relaxed);
    const std::uint32_t ahead = number >= next_ ? number - next_ : number + (call_numbers - next_);
    return ahead > call_numbers / 2 ? 0 : count + 1 + ahead;
  }

  void keep(std::uint64_t nth) {
    const auto after = std::find_if(beyond_.begin(), beyond_.end(),
                                    [&](const Range& range) { return nth <= range.last + 1; });
    if (after == beyond_.end() || nth + 1 < after->first) {
      beyond_.insert(after, {nth, nth});
      return;
    }
    after->first = std::min(after->first, nth);
    after->last = std::max(after->last, nth);
    const auto behind = after + 1;
    if (behind == beyond_.end() || behind->first != after->last + 1) return;
    after->last = behind->last;
    beyond_.erase(behind);
  }

  std::atomic<std::uint64_t> count_;
  std::uint32_t next_;         // number of call count_ + 1, kept so that no call divides
  std::vector<Range> beyond_;  // ascending; no two touch, nor the first and count_
};

}  // namespace pith
