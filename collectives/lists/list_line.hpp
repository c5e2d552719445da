// The vectors of one sum of lists, concatenated to one line: shares and messages that are cut from
// the line have equal lengths, however many vectors there are.
#pragma once

#include <algorithm>
#include <span>

#include "collectives/patterns.hpp"
#include "compress/pair_list.hpp"

namespace pith {

struct ListVector {
  std::size_t count = 0;       // elements
  SparseList list;             // this rank's pairs: one run
  std::span<PairList> memory;  // for received lists and sums
  std::size_t begin = 0;       // its first element in the line; set by line_up()
};

// Returns the number of elements in the line.
inline std::size_t line_up(std::span<ListVector> vectors) {
  std::size_t all = 0;
  for (ListVector& vector : vectors) {
    vector.begin = all;
    all += vector.count;
  }
  return all;
}

// All pairs of a list, which may have arrived in several messages.
inline SparseList all_of(PairList& list) { return {list.indices(), list.values(), list.count()}; }

// Calls each(vector, slice) for every vector that has elements in a range of the line. `slice` is
// those elements, counted from the vector's first.
template <class Vector, class Each>
void for_each_slice(std::span<Vector> vectors, Range range, Each each) {
  const std::size_t end = range.begin + range.size;
  const auto first = std::partition_point(
      vectors.begin(), vectors.end(),
      [&](const ListVector& vector) { return vector.begin + vector.count <= range.begin; });
  for (auto vector = first; vector != vectors.end() && vector->begin < end; ++vector) {
    const std::size_t from = std::max(vector->begin, range.begin);
    const std::size_t to = std::min(vector->begin + vector->count, end);
    if (from < to) each(*vector, Range{from - vector->begin, to - from});
  }
}

}  // namespace pith
