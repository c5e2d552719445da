// Sparse vectors of rows on one rank: sorted, distributed over the ranks that own them, added up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/compute.hpp"
#include "core/dtype.hpp"
#include "core/mix.hpp"

namespace pith {

// What a row is.
struct RowType {
  std::size_t width = 1;  // elements
  DType type = DType::f32;

  std::size_t bytes() const { return width * size_of(type); }
};

// The rank that adds up a row. By a hash: the frequent words of a vocabulary have its first
// numbers, and shares of equal length would give one rank most of the work. A few neighbours have
// one owner, so that they are copied and added together where all of them are there.
inline int owner_of(std::uint32_t number, int ranks) {
  constexpr std::uint32_t neighbours = 8;
  return static_cast<int>((mix(0, number / neighbours) >> 32) % static_cast<std::uint64_t>(ranks));
}

// Rows with their numbers, which ascend strictly; row by row.
struct RowSpan {
  std::span<const std::uint32_t> numbers;
  const std::byte* values = nullptr;

  std::size_t count() const { return numbers.size(); }
};

struct RowSet {
  std::vector<std::uint32_t> numbers;
  std::vector<std::byte> values;

  RowSpan span() const { return {numbers, values.data()}; }
};

// The n rows of a caller, whose numbers come in any order, each as often as it likes: those of
// equal number are added, in their order. Every index fits a number. Values that need no addition
// stay where they are: the result is valid as long as `memory` and they.
RowSpan sorted_rows(const std::uint64_t* indices, const std::byte* values, std::size_t n,
                    RowType row, Compute& compute, RowSet& memory);

// The rows that each of `ranks` ranks owns.
std::vector<RowSet> by_owner(const RowSpan& rows, int ranks, RowType row);

// Every row that one of the sets has, with the sum of all, added in the order of the sets.
RowSet sum_rows(std::span<const RowSpan> sets, RowType row, Compute& compute);

}  // namespace pith
