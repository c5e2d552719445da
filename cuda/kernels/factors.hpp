// Products of a matrix with factors of low rank. Projections add in an order of their own, the same
// in every run; products have the bits of src/kernels/low_rank/factors_scalar.cpp.
#pragma once

#include "cuda/kernels/numbers.hpp"

namespace pith::cuda {

// As FactorShape of core/sparse_kernel_args.hpp.
struct Factored {
  std::size_t rows;
  std::size_t columns;
  std::size_t rank;
};

struct ProjectArgs {
  Factored shape;
  const float* matrix;
  const float* factor;  // right of project, left of back_project
  float* out;           // left of project, right of back_project
  bool fresh;           // back_project: `out` is overwritten
};

// Both projections: a block's threads in `groups` groups of a warp, each with a sum for up to four
// ranks.
struct ProjectTile {
  static constexpr unsigned threads = 256, lanes = 32, groups = threads / lanes, ranks = 4;
  struct Shared {
    float sums[threads][ranks];
  };
};

// left = matrix times right transposed: a warp per row, its lanes along the row.
struct Project : ProjectTile {
  using Args = ProjectArgs;

  template <class Block>
  PITH_KERNEL static void run(const Block& block, const Args& args, Shared& shared) {
    const auto [rows, columns, rank] = args.shape;
    for (std::size_t first = block.index() * groups; first < rows;
         first += block.count() * groups) {
      for (std::size_t k = 0; k < rank; k += ranks) {
        const std::size_t some = smaller(std::size_t{ranks}, rank - k);
        block.each([&](unsigned thread) {
          const std::size_t row = first + thread / lanes;
          float sums[ranks] = {};
          for (std::size_t j = thread % lanes; row < rows && j < columns; j += lanes) {
            const float value = args.matrix[row * columns + j];
            for (std::size_t r = 0; r < some; ++r) {
              sums[r] += value * args.factor[(k + r) * columns + j];
            }
          }
          for (std::size_t r = 0; r < ranks; ++r) shared.sums[thread][r] = sums[r];
        });
        for (unsigned half = lanes / 2; half > 0; half /= 2) {
          block.sync();
          block.each([&](unsigned thread) {
            if (thread % lanes >= half) return;
            for (std::size_t r = 0; r < ranks; ++r) {
              shared.sums[thread][r] += shared.sums[thread + half][r];
            }
          });
        }
        block.sync();
        block.each([&](unsigned thread) {
          const std::size_t row = first + thread / lanes;
          const std::size_t r = thread % lanes;
          if (row < rows && r < some) {
            args.out[row * rank + k + r] = shared.sums[thread - thread % lanes][r];
          }
        });
        block.sync();  // `shared` is used again
      }
    }
  }
};

// right = left transposed times matrix: a lane per column, the groups at rows in turn.
struct BackProject : ProjectTile {
  using Args = ProjectArgs;

  template <class Block>
  PITH_KERNEL static void run(const Block& block, const Args& args, Shared& shared) {
    const auto [rows, columns, rank] = args.shape;
    for (std::size_t first = block.index() * lanes; first < columns;
         first += block.count() * lanes) {
      for (std::size_t k = 0; k < rank; k += ranks) {
        const std::size_t some = smaller(std::size_t{ranks}, rank - k);
        block.each([&](unsigned thread) {
          const std::size_t column = first + thread % lanes;
          float sums[ranks] = {};
          for (std::size_t i = thread / lanes; column < columns && i < rows; i += groups) {
            const float value = args.matrix[i * columns + column];
            for (std::size_t r = 0; r < some; ++r) {
              sums[r] += value * args.factor[i * rank + k + r];
            }
          }
          for (std::size_t r = 0; r < ranks; ++r) shared.sums[thread][r] = sums[r];
        });
        for (unsigned half = groups / 2; half > 0; half /= 2) {
          block.sync();
          block.each([&](unsigned thread) {
            if (thread / lanes >= half) return;
            for (std::size_t r = 0; r < ranks; ++r) {
              shared.sums[thread][r] += shared.sums[thread + half * lanes][r];
            }
          });
        }
        block.sync();
        block.each([&](unsigned thread) {
          const std::size_t column = first + thread % lanes;
          const std::size_t r = thread / lanes;
          if (column >= columns || r >= some) return;
          float& out = args.out[(k + r) * columns + column];
          const float sum = shared.sums[thread % lanes][r];
          out = args.fresh ? sum : out + sum;
        });
        block.sync();  // `shared` is used again
      }
    }
  }
};

PITH_DEVICE float product_at(const Factored& shape, const float* left, const float* right,
                             std::size_t element) {
  const std::size_t row = element / shape.columns;
  const std::size_t column = element % shape.columns;
  float sum = 0;
  for (std::size_t k = 0; k < shape.rank; ++k) {
    const float term = left[row * shape.rank + k] * right[k * shape.columns + column];
    sum = k == 0 ? term : sum + term;
  }
  return sum;
}

struct AddProductArgs {
  Factored shape;
  const float* left;
  const float* right;
  float* matrix;
  float factor;
};

struct AddProduct {
  using Args = AddProductArgs;
  static constexpr unsigned threads = 256;
  struct Shared {};

  template <class Block>
  PITH_KERNEL static void run(const Block& block, const Args& args, Shared&) {
    const std::size_t count = args.shape.rows * args.shape.columns;
    block.each([&](unsigned thread) {
      for (std::size_t i = std::size_t{block.index()} * threads + thread; i < count;
           i += std::size_t{block.count()} * threads) {
        args.matrix[i] += args.factor * product_at(args.shape, args.left, args.right, i);
      }
    });
  }
};

struct PutProductArgs {
  Factored shape;
  const float* left;
  const float* right;
  std::byte* out;
  float divisor;
};

template <class T>
struct PutProduct {
  using Args = PutProductArgs;
  static constexpr unsigned threads = 256;
  struct Shared {};

  template <class Block>
  PITH_KERNEL static void run(const Block& block, const Args& args, Shared&) {
    const std::size_t count = args.shape.rows * args.shape.columns;
    const bool aligned = misalignment(args.out, sizeof(T)) == 0;
    block.each([&](unsigned thread) {
      for (std::size_t i = std::size_t{block.index()} * threads + thread; i < count;
           i += std::size_t{block.count()} * threads) {
        const float value = product_at(args.shape, args.left, args.right, i) / args.divisor;
        store_element(args.out, i, narrow<T>(value), aligned);
      }
    });
  }
};

}  // namespace pith::cuda
