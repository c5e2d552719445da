#include "tests/collectives/atomo_reference.hpp"

#include <algorithm>
#include <cmath>

#include "compress/low_rank/atoms.hpp"
#include "compress/scheme.hpp"
#include "compress/thresholds/draw_key.hpp"
#include "core/mix.hpp"
#include "tests/reference/jacobi.hpp"

namespace pith::test {

namespace {

using Matrix = std::vector<double>;  // row by row

// Jacobi's way takes too long for large matrices: these have the library's vectors, which
// tests/compress checks by themselves.
Svd decomposed(const float* elements, const FactorShape& shape) {
  constexpr std::size_t soon = 32;
  const auto [rows, columns, rank] = shape;
  const std::size_t side = std::min(rows, columns);
  if (side <= soon) return jacobi_svd(elements, rows, columns);
  Spectrum spectrum;
  Svd found;
  if (spectrum.decompose(elements, {rows, columns})) return found;
  found.values.assign(spectrum.values().begin(), spectrum.values().end());
  for (std::size_t i = 0; i < side; ++i) {
    const auto vector = spectrum.vector(i);
    found.vectors.insert(found.vectors.end(), vector.begin(), vector.end());
  }
  return found;
}

// Algorithm 1 of the paper, as it stands there.
std::vector<double> probabilities_of(const std::vector<double>& values, double budget) {
  std::vector<double> p(values.size());
  for (std::size_t i = 0; i < values.size();) {
    double rest = 0;
    for (std::size_t j = values.size(); j-- > i;) rest += values[j];
    if (values[i] * budget <= rest) {
      for (std::size_t k = i; k < values.size() && rest > 0; ++k) p[k] = values[k] * budget / rest;
      break;
    }
    p[i++] = 1;
    budget -= 1;
  }
  return p;
}

double uniform(std::uint64_t key, std::uint64_t index) {
  return std::ldexp(double(mix(mix(key, index), index) >> 11), -53);
}

// Sums of drawn atoms, and how far off they may be.
struct Expected {
  Matrix sum;
  double size = 0;    // of all atoms
  bool clear = true;  // else rounding decides on directions of nearly equal values
};

void add_atom(const float* elements, const FactorShape& shape, const double* vector, double factor,
              Matrix& sum) {
  const auto [rows, columns, rank] = shape;
  const bool wide = rows <= columns;
  Matrix other(wide ? columns : rows);
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < columns; ++j) {
      const double value = double(elements[i * columns + j]);
      other[wide ? j : i] += factor * value * vector[wide ? i : j];
    }
  }
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < columns; ++j) {
      sum[i * columns + j] += vector[wide ? i : j] * other[wide ? j : i];
    }
  }
}

void draw(const float* elements, const FactorShape& shape, std::uint64_t key, Expected& expected) {
  const Svd svd = decomposed(elements, shape);
  const std::vector<double> p = probabilities_of(svd.values, double(shape.rank));
  const double least_gap = 1e-6 * svd.values[0] * svd.values[0];
  const auto apart = [&](std::size_t i, std::size_t j) {
    return svd.values[i] * svd.values[i] - svd.values[j] * svd.values[j] > least_gap;
  };
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (uniform(key, i) >= p[i]) continue;
    const bool first = i == 0 || apart(i - 1, i);
    const bool last = i + 1 == p.size() || apart(i, i + 1);
    expected.clear = expected.clear && first && last;
    expected.size += svd.values[i] / p[i];
    add_atom(elements, shape, svd.vectors.data() + i * p.size(), 1 / p[i], expected.sum);
  }
}

class AtomoReference final : public SchemeReference {
 public:
  explicit AtomoReference(const SparseCase& c) : case_(c), spec_(*Spec::parse(c.spec)) {}

  std::string check(SparseProgram& program) override {
    for (std::size_t t = 0; t < case_.counts.size(); ++t) {
      for (int r = 0; r < case_.ranks; ++r) {
        if (!program.compressor(r, t).residual_is_zero()) return "something is left";
      }
      for (const LowRankPart& part : program.compressor(0, t).low_rank.layout->parts()) {
        const Expected expected = expected_of(program, t, part);
        std::string failure = compare(program, t, part, expected);
        if (!failure.empty()) return fmt::format("tensor {}: {}", t, failure);
      }
    }
    ++step_;
    return {};
  }

 private:
  Expected expected_of(SparseProgram& program, std::size_t t, const LowRankPart& part) const {
    Expected expected;
    expected.sum.resize(part.count);
    for (int r = 0; r < case_.ranks; ++r) {
      const float* const elements = program.gradient(r, t).data() + part.begin;
      if (part.is_factored()) {
        const std::uint64_t key = draw_key(spec_.seed, step_, t, r);
        draw(elements, part.shape, mix(key, part.begin), expected);
        continue;
      }
      double most = 0;
      for (std::size_t i = 0; i < part.count; ++i) {
        expected.sum[i] += double(elements[i]);
        most = std::max(most, std::fabs(double(elements[i])));
      }
      expected.size += most;
    }
    return expected;
  }

  std::string compare(SparseProgram& program, std::size_t t, const LowRankPart& part,
                      const Expected& expected) const {
    constexpr double most = 1e37;  // near to where float32 ends
    if (!expected.clear || expected.size > most) return {};
    // Numbers that are not normal may count as zero.
    const double allowed = 1e-5 * expected.size + 1e-36;
    const double divisor = case_.average ? case_.ranks : 1;
    for (std::size_t i = 0; i < part.count; ++i) {
      const double found = double(program.result(0, t)[part.begin + i]) * divisor;
      if (std::fabs(found - expected.sum[i]) <= allowed) continue;
      return fmt::format("element {}: {} and not {}", part.begin + i, found, expected.sum[i]);
    }
    return {};
  }

  SparseCase case_;
  Spec spec_;
  std::uint64_t step_ = 0;
};

}  // namespace

std::unique_ptr<SchemeReference> atomo_reference(const SparseCase& c) {
  return std::make_unique<AtomoReference>(c);
}

}  // namespace pith::test
