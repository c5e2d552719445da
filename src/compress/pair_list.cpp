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

}  // namespace pith
