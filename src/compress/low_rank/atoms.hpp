// Which atoms of a matrix ATOMO keeps: singular values with their vectors, drawn without bias
// [Wang et al., "ATOMO: Communication-efficient Learning via Atomic Sparsification", NeurIPS 2018].
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compress/low_rank/spectrum.hpp"

namespace pith {

// The probabilities with which singular values, the largest first, are kept, `budget` of them on
// average, such that the drawn matrix has the least variance (algorithm 1 of the paper): as far as
// a value has more than its share of the budget it is sure to be kept, and the others have what is
// left of it in proportion to them. None if it is zero. `budget` is at least 1.
//
// The authors' program (hwang595/ATOMO, codings/svd.py) takes min(1, budget * value / sum) of all
// values, which keeps fewer, and draws again until it keeps some, which has a bias.
void keep_probabilities(std::span<const double> values, double budget,
                        std::span<double> probabilities);

// More atoms of a matrix are drawn with a probability below 1e-20, and are then left out.
constexpr std::size_t most_atoms(const FactorShape& shape) {
  return std::min({4 * shape.rank + 32, shape.rows, shape.columns});
}

// A rank's atoms of one matrix after another. Its numbers are, matrix by matrix, those of all left
// vectors, as long as a column, and then those of all right vectors, as long as a row; the sum of
// their products is the drawn matrix.
struct AtomList {
  std::vector<std::uint32_t> counts;  // of atoms, by matrix
  std::vector<float> numbers;
};

// Draws matrices' atoms. Has memory that it uses for all of them.
class AtomDraw {
 public:
  // Appends the atoms of a matrix, shape.rank of them on average. `elements`: finite, row by row.
  // The atoms depend on elements and key alone. May throw bad_alloc.
  Error append(const float* elements, const FactorShape& shape, std::uint64_t key, AtomList& list);

 private:
  void choose(const FactorShape& shape, std::uint64_t key);
  // The other vector of the atom, times its singular value, in `sums_`.
  void multiply(const float* elements, const FactorShape& shape, std::span<const double> vector);

  Spectrum spectrum_;
  std::vector<double> probabilities_;
  std::vector<std::size_t> chosen_;  // places in the spectrum
  std::vector<double> sums_;
};

}  // namespace pith
