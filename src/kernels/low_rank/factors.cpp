// Products of a matrix with low-rank factors. All are limited by memory: the matrix is read once,
// and each of its vectors meets up to four ranks in registers.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/low_rank/factors.cpp"
#include "kernels/low_rank/factors.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "hwy/foreach_target.h"
// Highway requires this order of includes.
#include "hwy/highway.h"
#include "kernels/cast.hpp"
#include "kernels/values-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace pith::kernels::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR || HWY_HAVE_SCALABLE

void project_of(const ProjectKernel::Args& args) { scalar::project(args); }
void back_project_of(const BackProjectKernel::Args& args) { scalar::back_project(args); }
void add_product_of(const AddProductKernel::Args& args) { scalar::add_product(args); }
void put_product_of(const PutProductKernel::Args& args) { scalar::put_product(args); }

#else

// Four ranks for as many rows as leave a register for each product.
constexpr std::size_t most_ranks = 4;
constexpr std::size_t most_rows = HWY_TARGET <= HWY_AVX3 ? 4 : 2;

// Calls body(j, load, store) for the vectors of a row; those of the last one reach its end only.
template <class Body>
HWY_INLINE void for_each_vector(std::size_t columns, const Body& body) {
  const std::size_t lanes = hn::Lanes(Floats());
  std::size_t j = 0;
  for (; j + lanes <= columns; j += lanes) {
    body(
        j, [](const float* at) HWY_ATTR { return hn::LoadU(Floats(), at); },
        [](Float value, float* at) HWY_ATTR { hn::StoreU(value, Floats(), at); });
  }
  if (j == columns) return;
  const std::size_t bytes = (columns - j) * sizeof(float);
  body(
      j,
      [bytes](const float* at) HWY_ATTR {
        HWY_ALIGN std::array<float, HWY_MAX_BYTES / sizeof(float)> padded{};
        std::memcpy(padded.data(), at, bytes);
        return hn::Load(Floats(), padded.data());
      },
      [bytes](Float value, float* at) HWY_ATTR {
        HWY_ALIGN std::array<float, HWY_MAX_BYTES / sizeof(float)> padded;
        hn::Store(value, Floats(), padded.data());
        std::memcpy(at, padded.data(), bytes);
      });
}

// Calls body(first, ranks) with the number of ranks as a constant.
template <class Body>
HWY_INLINE void for_each_ranks(std::size_t rank, const Body& body) {
  std::size_t first = 0;
  for (; first + most_ranks <= rank; first += most_ranks) {
    body(first, std::integral_constant<std::size_t, most_ranks>());
  }
  switch (rank - first) {
    case 1:
      return body(first, std::integral_constant<std::size_t, 1>());
    case 2:
      return body(first, std::integral_constant<std::size_t, 2>());
    case 3:
      return body(first, std::integral_constant<std::size_t, 3>());
    default:
      return;
  }
}

// Calls body(row, rows) with the number of rows as a constant.
template <class Body>
HWY_INLINE void for_each_rows(std::size_t rows, const Body& body) {
  std::size_t row = 0;
  for (; row + most_rows <= rows; row += most_rows) {
    body(row, std::integral_constant<std::size_t, most_rows>());
  }
  for (; row < rows; ++row) body(row, std::integral_constant<std::size_t, 1>());
}

template <std::size_t kRows, std::size_t kRanks>
HWY_INLINE void project_rows(const ProjectKernel::Args& args, std::size_t row, std::size_t first) {
  const auto [rows, columns, rank] = args.shape;
  const float* const matrix = args.matrix + row * columns;
  const float* const right = args.right + first * columns;
  std::array<Float, kRows * kRanks> sums;
  for (Float& sum : sums) sum = hn::Zero(Floats());
  for_each_vector(columns, [&](std::size_t j, const auto& load, const auto&) HWY_ATTR {
    std::array<Float, kRanks> other;
    unrolled<kRanks>([&](auto k)
                         HWY_ATTR { other[k.value] = load(right + k.value * columns + j); });
    unrolled<kRows>([&](auto r) HWY_ATTR {
      const Float value = load(matrix + r.value * columns + j);
      unrolled<kRanks>([&](auto k) HWY_ATTR {
        Float& sum = sums[r.value * kRanks + k.value];
        sum = hn::MulAdd(value, other[k.value], sum);
      });
    });
  });
  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t k = 0; k < kRanks; ++k) {
      args.left[(row + r) * rank + first + k] =
          hn::GetLane(hn::SumOfLanes(Floats(), sums[r * kRanks + k]));
    }
  }
}

void project_of(const ProjectKernel::Args& args) {
  for_each_rows(args.shape.rows, [&](std::size_t row, auto rows) HWY_ATTR {
    for_each_ranks(args.shape.rank, [&](std::size_t first, auto ranks) HWY_ATTR {
      project_rows<rows.value, ranks.value>(args, row, first);
    });
  });
}

template <std::size_t kRows, std::size_t kRanks>
HWY_INLINE void back_project_rows(const BackProjectKernel::Args& args, std::size_t row,
                                  std::size_t first) {
  const auto [rows, columns, rank] = args.shape;
  const float* const matrix = args.matrix + row * columns;
  float* const right = args.right + first * columns;
  std::array<Float, kRows * kRanks> factors;
  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t k = 0; k < kRanks; ++k) {
      factors[r * kRanks + k] = hn::Set(Floats(), args.left[(row + r) * rank + first + k]);
    }
  }
  for_each_vector(columns, [&](std::size_t j, const auto& load, const auto& store) HWY_ATTR {
    std::array<Float, kRanks> sums;
    unrolled<kRanks>([&](auto k) HWY_ATTR { sums[k.value] = load(right + k.value * columns + j); });
    unrolled<kRows>([&](auto r) HWY_ATTR {
      const Float value = load(matrix + r.value * columns + j);
      unrolled<kRanks>([&](auto k) HWY_ATTR {
        sums[k.value] = hn::MulAdd(value, factors[r.value * kRanks + k.value], sums[k.value]);
      });
    });
    unrolled<kRanks>([&](auto k) HWY_ATTR { store(sums[k.value], right + k.value * columns + j); });
  });
}

void back_project_of(const BackProjectKernel::Args& args) {
  if (args.fresh) std::fill_n(args.right, args.shape.rank * args.shape.columns, 0.0f);
  for_each_rows(args.shape.rows, [&](std::size_t row, auto rows) HWY_ATTR {
    for_each_ranks(args.shape.rank, [&](std::size_t first, auto ranks) HWY_ATTR {
      back_project_rows<rows.value, ranks.value>(args, row, first);
    });
  });
}

// A part of a row of the product; it stays in the L1 cache.
constexpr std::size_t part_columns = 1024;

template <std::size_t kRanks>
HWY_INLINE void add_terms(const float* left, const float* right, std::size_t stride,
                          std::size_t columns, bool is_first, float* sums) {
  std::array<Float, kRanks> factors;
  unrolled<kRanks>([&](auto k) HWY_ATTR { factors[k.value] = hn::Set(Floats(), left[k.value]); });
  for_each_vector(columns, [&](std::size_t j, const auto& load, const auto&) HWY_ATTR {
    Float sum = hn::Mul(factors[0], load(right + j));
    if (!is_first) sum = hn::Add(hn::Load(Floats(), sums + j), sum);
    unrolled<kRanks - 1>([&](auto k) HWY_ATTR {
      sum = hn::Add(sum, hn::Mul(factors[k.value + 1], load(right + (k.value + 1) * stride + j)));
    });
    hn::Store(sum, Floats(), sums + j);
  });
}

// Calls put(offset, sums, count) for the parts of left times right, offsets in elements.
template <class Put>
HWY_INLINE void for_each_part(const FactorShape& shape, const float* left, const float* right,
                              const Put& put) {
  HWY_ALIGN float sums[part_columns];
  for (std::size_t i = 0; i < shape.rows; ++i) {
    for (std::size_t begin = 0; begin < shape.columns; begin += part_columns) {
      const std::size_t columns = std::min(part_columns, shape.columns - begin);
      for_each_ranks(shape.rank, [&](std::size_t first, auto ranks) HWY_ATTR {
        add_terms<ranks.value>(left + i * shape.rank + first, right + first * shape.columns + begin,
                               shape.columns, columns, first == 0, sums);
      });
      put(i * shape.columns + begin, sums, columns);
    }
  }
}

void add_product_of(const AddProductKernel::Args& args) {
  const Float factor = hn::Set(Floats(), args.factor);
  for_each_part(args.shape, args.left, args.right,
                [&](std::size_t offset, const float* sums, std::size_t count) HWY_ATTR {
                  float* const matrix = args.matrix + offset;
                  for_each_vector(
                      count, [&](std::size_t j, const auto& load, const auto& store) HWY_ATTR {
                        const Float more = hn::Mul(factor, hn::Load(Floats(), sums + j));
                        store(hn::Add(load(matrix + j), more), matrix + j);
                      });
                });
}

void store_as(const float* sums, std::size_t count, DType type, std::byte* out) {
  const auto* const from = reinterpret_cast<const std::byte*>(sums);
  if (type == DType::f32) {
    std::memcpy(out, from, count * sizeof(float));
  } else {
    cast(out, type, from, DType::f32, count);
  }
}

void put_product_of(const PutProductKernel::Args& args) {
  const bool divides = args.divisor != 1;
  const Float divisor = hn::Set(Floats(), args.divisor);
  for_each_part(args.shape, args.left, args.right,
                [&](std::size_t offset, float* sums, std::size_t count) HWY_ATTR {
                  if (divides) {
                    for_each_vector(count, [&](std::size_t j, const auto&, const auto&) HWY_ATTR {
                      hn::Store(hn::Div(hn::Load(Floats(), sums + j), divisor), Floats(), sums + j);
                    });
                  }
                  store_as(sums, count, args.type, args.out + offset * size_of(args.type));
                });
}

#endif
}  // namespace pith::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pith::kernels {

HWY_EXPORT(project_of);
HWY_EXPORT(back_project_of);
HWY_EXPORT(add_product_of);
HWY_EXPORT(put_product_of);

void project(const ProjectKernel::Args& args) { HWY_DYNAMIC_DISPATCH(project_of)(args); }
void back_project(const BackProjectKernel::Args& args) {
  HWY_DYNAMIC_DISPATCH(back_project_of)(args);
}
void add_product(const AddProductKernel::Args& args) { HWY_DYNAMIC_DISPATCH(add_product_of)(args); }
void put_product(const PutProductKernel::Args& args) { HWY_DYNAMIC_DISPATCH(put_product_of)(args); }

}  // namespace pith::kernels
#endif
