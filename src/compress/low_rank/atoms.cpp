#include "compress/low_rank/atoms.hpp"

#include "core/mix.hpp"

namespace pith {

namespace {

// Below 1, the same number for the same key and index.
double uniform(std::uint64_t key, std::uint64_t index) {
  return static_cast<double>(mix(mix(key, index), index) >> 11) * 0x1p-53;
}

}  // namespace

// Sums begin with the smallest value, so that they lose nothing to rounding.
void keep_probabilities(std::span<const double> values, double budget,
                        std::span<double> probabilities) {
  double sum = 0;
  for (std::size_t i = values.size(); i-- > 0;) {
    sum += values[i];
    probabilities[i] = sum;  // of this value and those behind it
  }
  std::size_t first = 0;
  while (first < values.size() && values[first] * budget > probabilities[first]) {
    probabilities[first++] = 1;
    budget -= 1;
  }
  if (first == values.size()) return;
  sum = probabilities[first];
  for (std::size_t i = first; i < values.size(); ++i) {
    probabilities[i] = sum > 0 ? std::min(values[i] * budget / sum, 1.0) : 0;
  }
}

void AtomDraw::choose(const FactorShape& shape, std::uint64_t key) {
  const std::span<const double> values = spectrum_.values();
  probabilities_.resize(values.size());
  keep_probabilities(values, static_cast<double>(shape.rank), probabilities_);
  chosen_.clear();
  for (std::size_t i = 0; i < values.size() && chosen_.size() < most_atoms(shape); ++i) {
    if (uniform(key, i) < probabilities_[i]) chosen_.push_back(i);
  }
}

void AtomDraw::multiply(const float* elements, const FactorShape& shape,
                        std::span<const double> vector) {
  const auto [rows, columns, rank] = shape;
  if (rows <= columns) {
    sums_.assign(columns, 0);
    for (std::size_t i = 0; i < rows; ++i) {
      const float* const row = elements + i * columns;
      for (std::size_t j = 0; j < columns; ++j) sums_[j] += vector[i] * double(row[j]);
    }
    return;
  }
  sums_.assign(rows, 0);
  for (std::size_t i = 0; i < rows; ++i) {
    const float* const row = elements + i * columns;
    for (std::size_t j = 0; j < columns; ++j) sums_[i] += vector[j] * double(row[j]);
  }
}

Error AtomDraw::append(const float* elements, const FactorShape& shape, std::uint64_t key,
                       AtomList& list) {
  if (Error error = spectrum_.decompose(elements, {shape.rows, shape.columns})) return error;
  choose(shape, key);
  const std::size_t begin = list.numbers.size();
  list.numbers.resize(begin + chosen_.size() * (shape.rows + shape.columns));
  float* left = list.numbers.data() + begin;
  float* right = left + chosen_.size() * shape.rows;
  for (const std::size_t i : chosen_) {
    const std::span<const double> vector = spectrum_.vector(i);
    multiply(elements, shape, vector);
    const double factor = 1 / probabilities_[i];
    const bool wide = shape.rows <= shape.columns;
    float*& near = wide ? left : right;
    float*& far = wide ? right : left;
    for (const double number : vector) *near++ = static_cast<float>(number);
    for (const double sum : sums_) *far++ = static_cast<float>(factor * sum);
  }
  list.counts.push_back(static_cast<std::uint32_t>(chosen_.size()));
  return {};
}

}  // namespace pith
