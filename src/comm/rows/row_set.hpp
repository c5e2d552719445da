// Sparse vectors of rows on one rank: sorted, and added up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/compute.hpp"
#include "core/dtype.hpp"

namespace pith {

// What a row is.
struct RowType {
  std::size_t width = 1;  // elements
  DType type = DType::f32;

  std::size_t bytes() const { return width * size_of(type); }
};

// Rows with their numbers, which ascend strictly; row by row.
struct RowSpan {
  std::span<const std::uint32_t> numbers;
  const std::byte* values = nullptr;

  std::size_t count() const { return numbers.size(); }
  // Those with numbers in [begin, end).
  RowSpan part(std::uint64_t begin, std::uint64_t end, RowType row) const;
};

struct RowSet {
  std::vector<std::uint32_t> numbers;
  std::vector<std::byte> values;

  RowSpan span() const { return {numbers, values.data()}; }
};

// The n rows of a caller, whose numbers come in any order, each as often as it likes: those of
// equal number are added, in their order. Every index fits a number.
RowSet sorted_rows(const std::uint64_t* indices, const std::byte* values, std::size_t n,
                   RowType row, Compute& compute);

// Every row that one of the sets has, with the sum of all, added in the order of the sets.
RowSet sum_rows(std::span<const RowSpan> sets, RowType row, Compute& compute);

}  // namespace pith
