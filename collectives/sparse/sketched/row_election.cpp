#include "collectives/sparse/sketched/row_election.hpp"

#include <cmath>
#include <limits>
#include <numeric>

#include "core/sparse_kernel_args.hpp"

namespace pith {

namespace {

// Squares of float32 are exact in float64, so that fused additions make no difference.
float norm_of(std::span<const float> row) {
  double squares = 0;
  for (const float value : row) squares += double(value) * double(value);
  const auto norm = static_cast<float>(std::sqrt(squares));
  return std::isnan(norm) ? std::numeric_limits<float>::infinity() : norm;
}

}  // namespace

void elect_rows(Compute& host, std::span<const float> sketch, std::size_t columns, std::size_t k,
                std::span<std::uint32_t> elected, std::span<float> norms) {
  const std::size_t rows = sketch.size() / columns;
  for (std::size_t row = 0; row < rows; ++row) {
    norms[row] = norm_of(sketch.subspan(row * columns, columns));
  }
  std::iota(elected.begin(), elected.begin() + static_cast<std::ptrdiff_t>(rows), 0u);
  float smallest = 0;
  double squares = 0;
  host.run<KeepLargestKernel>(
      {elected.data(), norms.data(), rows, k, nullptr, &smallest, &squares});
}

}  // namespace pith
