#include "compress/pair_list.hpp"

#include <algorithm>

namespace pith {

SparseList part_of(const SparseList& all, DType type, std::size_t first, std::size_t span) {
  const std::uint32_t* end = all.indices + all.count;
  const std::uint32_t* from = std::lower_bound(all.indices, end, first);
  const std::uint32_t* to = std::lower_bound(from, end, first + span);
  const auto skipped = static_cast<std::size_t>(from - all.indices);
  return {from, all.values + skipped * size_of(type), static_cast<std::size_t>(to - from)};
}

SparseList PairList::append_nonzero(const SparseList& list) {
  const auto* given = reinterpret_cast<const float*>(list.values);
  const auto n = list.count - static_cast<std::size_t>(std::count(given, given + list.count, 0.0f));
  if (n == 0) return {};
  reserve(n);
  std::uint32_t* const to = indices(count_);
  auto* const numbers = reinterpret_cast<float*>(values(count_));
  for (std::size_t i = 0, found = 0; found < n; ++i) {
    if (given[i] == 0) continue;
    to[found] = list.indices[i];
    numbers[found++] = given[i];
  }
  end_run(n);
  return run(runs() - 1);
}

}  // namespace pith
