#include "frame/drawn_check.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <stdexcept>

#include "compress/low_rank/atoms.hpp"
#include "compress/low_rank/given_matrices.hpp"
#include "compress/thresholds/draw_key.hpp"
#include "core/mix.hpp"

namespace pith_perf {

namespace {

double most_of(std::span<const float> values) {
  float most = 0;
  for (const float value : values) most = std::max(most, std::abs(value));
  return double{most};
}

double add_atoms(const pith::AtomList& list, const pith::FactorShape& shape,
                 std::span<double> sum) {
  const std::size_t atoms = list.counts[0];
  const std::span<const float> numbers(list.numbers);
  double size = 0;
  for (std::size_t k = 0; k < atoms; ++k) {
    const auto left = numbers.subspan(k * shape.rows, shape.rows);
    const auto right = numbers.subspan(atoms * shape.rows + k * shape.columns, shape.columns);
    size += most_of(left) * most_of(right);
    for (std::size_t i = 0; i < shape.rows; ++i) {
      for (std::size_t j = 0; j < shape.columns; ++j) {
        sum[i * shape.columns + j] += double{left[i]} * double{right[j]};
      }
    }
  }
  return size;
}

}  // namespace

double add_drawn(const pith::Spec& spec, std::uint64_t step, int rank,
                 std::span<const float> gradient, std::span<double> sum) {
  const pith::LowRankLayout layout = pith::unstated_layout(spec, gradient.size());
  const std::uint64_t key = pith::draw_key(spec.seed, step, 0, rank);
  pith::AtomDraw draw;
  double size = 0;
  for (const pith::LowRankPart& part : layout.parts()) {
    const auto elements = gradient.subspan(part.begin, part.count);
    const auto to = sum.subspan(part.begin, part.count);
    if (part.is_factored()) {
      pith::AtomList list;
      const pith::Error error =
          draw.append(elements.data(), part.shape, pith::mix(key, part.begin), list);
      if (error) throw std::runtime_error(error.message());
      size = std::max(size, add_atoms(list, part.shape, to));
      continue;
    }
    size = std::max(size, most_of(elements));
    for (std::size_t i = 0; i < part.count; ++i) to[i] += double{elements[i]};
  }
  return size;
}

}  // namespace pith_perf
