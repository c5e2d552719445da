// After Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008): both
// operands are copied into panels that the innermost loop reads in order, and a tile of results,
// four rows of two vectors, stays in registers for inner_block steps.
#include "tools/demo/gemm.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

// Highway compiles the part below once per instruction set and picks one at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tools/demo/gemm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace pith::demo::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
// Every vector has as many lanes as the tag says; four if only the hardware knows its vector size.
using Floats = hn::CappedTag<float, HWY_HAVE_SCALABLE ? 4 : 16>;

constexpr std::size_t tile_rows = 4;
constexpr std::size_t inner_block = 256;
constexpr std::size_t tile_columns = 2 * hn::MaxLanes(Floats());

// out[k][i] = from(i, k) for `inner` steps k and panel_width values each; missing values are zero.
template <std::size_t panel_width>
void pack(const float* from, std::size_t stride_i, std::size_t stride_k, std::size_t count,
          std::size_t inner, float* out) {
  if (stride_i == 1 && count == panel_width) {
    for (std::size_t k = 0; k < inner; ++k) {
      std::memcpy(out + k * panel_width, from + k * stride_k, panel_width * sizeof(float));
    }
    return;
  }
  for (std::size_t i = 0; i < panel_width; ++i) {
    for (std::size_t k = 0; k < inner; ++k) {
      out[k * panel_width + i] = i < count ? from[i * stride_i + k * stride_k] : 0.0F;
    }
  }
}

// tile[tile_rows][tile_columns] = the product of two packed panels.
HWY_INLINE void multiply_panels(const float* a, const float* b, std::size_t inner, float* tile) {
  const Floats d;
  constexpr std::size_t lanes = tile_columns / 2;
  auto left0 = hn::Zero(d), left1 = hn::Zero(d), left2 = hn::Zero(d), left3 = hn::Zero(d);
  auto right0 = hn::Zero(d), right1 = hn::Zero(d), right2 = hn::Zero(d), right3 = hn::Zero(d);
  for (std::size_t k = 0; k < inner; ++k, a += tile_rows, b += 2 * lanes) {
    const auto left = hn::LoadU(d, b);
    const auto right = hn::LoadU(d, b + lanes);
    const auto factor0 = hn::Set(d, a[0]);
    left0 = hn::MulAdd(factor0, left, left0);
    right0 = hn::MulAdd(factor0, right, right0);
    const auto factor1 = hn::Set(d, a[1]);
    left1 = hn::MulAdd(factor1, left, left1);
    right1 = hn::MulAdd(factor1, right, right1);
    const auto factor2 = hn::Set(d, a[2]);
    left2 = hn::MulAdd(factor2, left, left2);
    right2 = hn::MulAdd(factor2, right, right2);
    const auto factor3 = hn::Set(d, a[3]);
    left3 = hn::MulAdd(factor3, left, left3);
    right3 = hn::MulAdd(factor3, right, right3);
  }
  hn::StoreU(left0, d, tile);
  hn::StoreU(right0, d, tile + lanes);
  hn::StoreU(left1, d, tile + 2 * lanes);
  hn::StoreU(right1, d, tile + 3 * lanes);
  hn::StoreU(left2, d, tile + 4 * lanes);
  hn::StoreU(right2, d, tile + 5 * lanes);
  hn::StoreU(left3, d, tile + 6 * lanes);
  hn::StoreU(right3, d, tile + 7 * lanes);
}

// Adds the part of the tile inside the result: `rows` x `columns` of it.
HWY_INLINE void add_tile(const float* tile, std::size_t rows, std::size_t columns,
                         std::size_t stride, float* result) {
  for (std::size_t i = 0; i < rows; ++i) {
    const float* const line = tile + i * tile_columns;
    float* const out = result + i * stride;
    for (std::size_t j = 0; j < columns; ++j) out[j] += line[j];
  }
}

// result += a[:, block] * b[block, :] for one block of the inner dimension.
void add_block(ProductSize size, MatrixView a, MatrixView b, float* a_panels, float* b_panel,
               float* result) {
  for (std::size_t i = 0; i < size.rows; i += tile_rows) {
    pack<tile_rows>(a.data + i * a.row_stride, a.row_stride, a.column_stride,
                    std::min(tile_rows, size.rows - i), size.inner, a_panels + i * size.inner);
  }
  for (std::size_t j = 0; j < size.columns; j += tile_columns) {
    const std::size_t columns = std::min(tile_columns, size.columns - j);
    pack<tile_columns>(b.data + j * b.column_stride, b.column_stride, b.row_stride, columns,
                       size.inner, b_panel);
    for (std::size_t i = 0; i < size.rows; i += tile_rows) {
      float tile[tile_rows * tile_columns];
      multiply_panels(a_panels + i * size.inner, b_panel, size.inner, tile);
      add_tile(tile, std::min(tile_rows, size.rows - i), columns, size.columns,
               result + i * size.columns + j);
    }
  }
}

void multiply(ProductSize size, MatrixView a, MatrixView b, const float* bias, float* result) {
  thread_local std::vector<float> a_panels;
  thread_local std::vector<float> b_panel;
  const std::size_t padded_rows = (size.rows + tile_rows - 1) / tile_rows * tile_rows;
  const std::size_t inner_max = std::min(size.inner, inner_block);
  a_panels.resize(std::max(a_panels.size(), padded_rows * inner_max));
  b_panel.resize(std::max(b_panel.size(), tile_columns * inner_max));
  for (std::size_t i = 0; i < size.rows; ++i) {
    float* const row = result + i * size.columns;
    if (bias != nullptr) {
      std::copy_n(bias, size.columns, row);
    } else {
      std::fill_n(row, size.columns, 0.0F);
    }
  }
  for (std::size_t k = 0; k < size.inner; k += inner_block) {
    const std::size_t inner = std::min(inner_block, size.inner - k);
    add_block({size.rows, size.columns, inner},
              {a.data + k * a.column_stride, a.row_stride, a.column_stride},
              {b.data + k * b.row_stride, b.row_stride, b.column_stride}, a_panels.data(),
              b_panel.data(), result);
  }
}

}  // namespace pith::demo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pith::demo {

HWY_EXPORT(multiply);

void multiply(ProductSize size, MatrixView a, MatrixView b, const float* bias, float* result) {
  HWY_DYNAMIC_DISPATCH(multiply)(size, a, b, bias, result);
}

}  // namespace pith::demo
#endif
