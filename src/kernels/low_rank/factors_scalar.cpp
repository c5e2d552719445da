#include <algorithm>

#include "kernels/cast.hpp"
#include "kernels/low_rank/factors.hpp"

namespace pith::kernels::scalar {

namespace {

float product_at(const FactorShape& shape, const float* left, const float* right, std::size_t i,
                 std::size_t j) {
  float sum = 0;
  for (std::size_t k = 0; k < shape.rank; ++k) {
    const float term = left[i * shape.rank + k] * right[k * shape.columns + j];
    sum = k == 0 ? term : sum + term;
  }
  return sum;
}

}  // namespace

void project(const ProjectKernel::Args& args) {
  const auto [rows, columns, rank] = args.shape;
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t k = 0; k < rank; ++k) {
      float sum = 0;
      for (std::size_t j = 0; j < columns; ++j) {
        sum += args.matrix[i * columns + j] * args.right[k * columns + j];
      }
      args.left[i * rank + k] = sum;
    }
  }
}

void back_project(const BackProjectKernel::Args& args) {
  const auto [rows, columns, rank] = args.shape;
  if (args.fresh) std::fill_n(args.right, rank * columns, 0.0f);
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t k = 0; k < rank; ++k) {
      const float factor = args.left[i * rank + k];
      for (std::size_t j = 0; j < columns; ++j) {
        args.right[k * columns + j] += factor * args.matrix[i * columns + j];
      }
    }
  }
}

void add_product(const AddProductKernel::Args& args) {
  const std::size_t columns = args.shape.columns;
  for (std::size_t i = 0; i < args.shape.rows; ++i) {
    for (std::size_t j = 0; j < columns; ++j) {
      args.matrix[i * columns + j] +=
          args.factor * product_at(args.shape, args.left, args.right, i, j);
    }
  }
}

void put_product(const PutProductKernel::Args& args) {
  const std::size_t columns = args.shape.columns;
  for (std::size_t i = 0; i < args.shape.rows; ++i) {
    for (std::size_t j = 0; j < columns; ++j) {
      const float value = product_at(args.shape, args.left, args.right, i, j) / args.divisor;
      cast(args.out + (i * columns + j) * size_of(args.type), args.type,
           reinterpret_cast<const std::byte*>(&value), DType::f32, 1);
    }
  }
}

}  // namespace pith::kernels::scalar
