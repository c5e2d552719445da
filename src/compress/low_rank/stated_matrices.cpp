#include "compress/low_rank/stated_matrices.hpp"

#include <fmt/format.h>

#include <limits>

#include "compress/low_rank/given_matrices.hpp"

namespace pith {

Expected<std::size_t> elements_of(std::span<const MatrixShape> matrices) {
  constexpr std::uint64_t most = std::numeric_limits<std::uint32_t>::max();
  std::uint64_t all = 0;
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    const auto [rows, columns] = matrices[i];
    const bool fits = columns == 0 || rows <= (most - all) / columns;
    if (!fits) {
      return Error(Code::invalid_argument,
                   fmt::format("matrix {} is {} x {}, expected at most {} elements in all matrices",
                               i, rows, columns, most));
    }
    all += rows * columns;
  }
  return all;
}

Error state_matrices(Compressor& compressor, std::span<const MatrixShape> matrices) {
  const Expected<std::size_t> count = elements_of(matrices);
  if (!count) return count.error();
  const Spec& spec = compressor.spec();
  if (layout_rank_of(spec) == 0) return {};
  if (compressor.shaped() && *count != compressor.count()) {
    return {Code::invalid_argument,
            fmt::format("the matrices have {} elements, expected {} as the vector", *count,
                        compressor.count())};
  }
  auto layout = std::make_shared<LowRankLayout>(stated_layout(spec, matrices));
  auto& known = compressor.low_rank.layout;
  if (!compressor.is_new() && known && known->digest() != layout->digest()) {
    return {Code::invalid_usage,
            "the compressor has been used with other matrices, expected the same"};
  }
  if (!known || compressor.is_new()) known = std::move(layout);
  return {};
}

}  // namespace pith
