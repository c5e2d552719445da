// The ranges of a vector to which a call has added its gradient. They come in any order, each once;
// adjacent ones are merged.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace pith {

class AddedRanges {
 public:
  struct Part {
    std::size_t begin = 0;
    std::size_t count = 0;
  };

  // Two ranges suffice for a pass that starts anywhere and wraps around: it allocates nothing.
  AddedRanges() { reserve(2); }
  // Room for `apart` separate ranges, so that add() does not allocate.
  void reserve(std::size_t apart) { ranges_.reserve(apart); }
  void clear() { ranges_.clear(); }

  // Precondition: no part of the range has been added.
  void add(std::size_t begin, std::size_t count) {
    if (count == 0) return;
    const std::size_t end = begin + count;
    const auto next = std::lower_bound(
        ranges_.begin(), ranges_.end(), begin,
        [](const Range& range, std::size_t position) { return range.begin < position; });
    const bool touches_next = next != ranges_.end() && next->begin == end;
    const bool touches_last = next != ranges_.begin() && std::prev(next)->end == begin;
    if (touches_last) {
      std::prev(next)->end = touches_next ? next->end : end;
      if (touches_next) ranges_.erase(next);
    } else if (touches_next) {
      next->begin = begin;
    } else {
      ranges_.insert(next, {begin, end});
    }
  }

  // The first range of [0, count) that has not been added; empty: none. Adding it never allocates.
  Part first_gap(std::size_t count) const {
    if (ranges_.empty()) return {0, count};
    const Range& first = ranges_.front();
    if (first.begin > 0) return {0, first.begin};
    return {first.end, (ranges_.size() > 1 ? ranges_[1].begin : count) - first.end};
  }

 private:
  struct Range {
    std::size_t begin;
    std::size_t end;
  };
  std::vector<Range> ranges_;  // ascending, disjoint, not adjacent
};

}  // namespace pith
