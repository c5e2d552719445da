// A small float32 matrix product: enough for the demo's three products per layer.
#pragma once

#include <cstddef>

namespace pith::demo {

// Element (i, j) is at data[i * row_stride + j * column_stride]: a transpose swaps the strides.
struct MatrixView {
  const float* data;
  std::size_t row_stride;
  std::size_t column_stride;
};

struct ProductSize {
  std::size_t rows;
  std::size_t columns;
  std::size_t inner;
};

// result (row major, size.columns wide) = a * b, plus `bias` on every row unless null. The result
// must not overlap an operand. The order of additions depends only on the size.
void multiply(ProductSize size, MatrixView a, MatrixView b, const float* bias, float* result);

}  // namespace pith::demo
