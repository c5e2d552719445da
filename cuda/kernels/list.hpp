// Every kernel: X(name, type...), where `name` is its symbol without the prefix pith_. KernelName
// numbers them in this order; launchers compute with the numbers of reduce, scale, divide and cast.
#pragma once

#include "cuda/kernels/coded.hpp"
#include "cuda/kernels/dense.hpp"
#include "cuda/kernels/factors.hpp"
#include "cuda/kernels/histogram.hpp"
#include "cuda/kernels/index_code.hpp"
#include "cuda/kernels/keep_largest.hpp"
#include "cuda/kernels/lists.hpp"
#include "cuda/kernels/momentum.hpp"
#include "cuda/kernels/sample.hpp"
#include "cuda/kernels/select.hpp"
#include "cuda/kernels/sums.hpp"

#define PITH_CUDA_OPS(X, name, T)              \
  X(reduce_##name##_sum, Reduce<T, Op::sum>)   \
  X(reduce_##name##_prod, Reduce<T, Op::prod>) \
  X(reduce_##name##_max, Reduce<T, Op::max>)   \
  X(reduce_##name##_min, Reduce<T, Op::min>)   \
  X(scale_##name, Scale<T>)                    \
  X(divide_##name, Divide<T>)

#define PITH_CUDA_CASTS(X, name, T)        \
  X(cast_##name##_f16, Cast<Half, T>)      \
  X(cast_##name##_f32, Cast<float, T>)     \
  X(cast_##name##_f64, Cast<double, T>)    \
  X(cast_##name##_bf16, Cast<Bfloat, T>)   \
  X(cast_##name##_f8e4m3, Cast<F8e4m3, T>) \
  X(cast_##name##_f8e5m2, Cast<F8e5m2, T>)

// The same for both signs.
#define PITH_CUDA_BIT_OPS(X, name, T)          \
  X(reduce_##name##_band, Reduce<T, Op::band>) \
  X(reduce_##name##_bor, Reduce<T, Op::bor>)   \
  X(reduce_##name##_bxor, Reduce<T, Op::bxor>) \
  X(reduce_##name##_land, Reduce<T, Op::land>) \
  X(reduce_##name##_lor, Reduce<T, Op::lor>)   \
  X(reduce_##name##_lxor, Reduce<T, Op::lxor>)

// By the size of an element.
#define PITH_CUDA_BIT_KERNELS(X)           \
  PITH_CUDA_BIT_OPS(X, b8, std::uint8_t)   \
  PITH_CUDA_BIT_OPS(X, b32, std::uint32_t) \
  PITH_CUDA_BIT_OPS(X, b64, std::uint64_t)

// In the order of DType.
#define PITH_CUDA_INTEGER_KERNELS(X)   \
  PITH_CUDA_OPS(X, i8, std::int8_t)    \
  PITH_CUDA_OPS(X, u8, std::uint8_t)   \
  PITH_CUDA_OPS(X, i32, std::int32_t)  \
  PITH_CUDA_OPS(X, u32, std::uint32_t) \
  PITH_CUDA_OPS(X, i64, std::int64_t)  \
  PITH_CUDA_OPS(X, u64, std::uint64_t)

#define PITH_CUDA_FLOAT_KERNELS(X) \
  PITH_CUDA_OPS(X, f16, Half)      \
  PITH_CUDA_OPS(X, f32, float)     \
  PITH_CUDA_OPS(X, f64, double)    \
  PITH_CUDA_OPS(X, bf16, Bfloat)   \
  PITH_CUDA_OPS(X, f8e4m3, F8e4m3) \
  PITH_CUDA_OPS(X, f8e5m2, F8e5m2)

#define PITH_CUDA_COMPLEX_OPS(X, name, T)      \
  X(reduce_##name##_prod, Reduce<T, Op::prod>) \
  X(scale_##name, Scale<T>)

// Sums and averages are those of reals.
#define PITH_CUDA_COMPLEX_KERNELS(X)            \
  PITH_CUDA_COMPLEX_OPS(X, c64, Complex<float>) \
  PITH_CUDA_COMPLEX_OPS(X, c128, Complex<double>)

#define PITH_CUDA_CAST_KERNELS(X)    \
  PITH_CUDA_CASTS(X, f16, Half)      \
  PITH_CUDA_CASTS(X, f32, float)     \
  PITH_CUDA_CASTS(X, f64, double)    \
  PITH_CUDA_CASTS(X, bf16, Bfloat)   \
  PITH_CUDA_CASTS(X, f8e4m3, F8e4m3) \
  PITH_CUDA_CASTS(X, f8e5m2, F8e5m2) \
  X(copy, Copy)                      \
  X(fill, Fill)

#define PITH_CUDA_PASSES(X, name, Gradient)      \
  X(accumulate_##name, Select<Gradient, false>)  \
  X(select_##name, Select<Gradient, true>)       \
  X(histogram_##name, CountMagnitudes<Gradient>) \
  X(sample_##name, Sample<Gradient>)

// `none` precedes the types.
#define PITH_CUDA_SELECT_KERNELS(X)     \
  PITH_CUDA_PASSES(X, none, NoGradient) \
  PITH_CUDA_PASSES(X, f16, Half)        \
  PITH_CUDA_PASSES(X, f32, float)       \
  PITH_CUDA_PASSES(X, bf16, Bfloat)     \
  X(add_histogram, AddHistogram)        \
  X(kth_high, FindKth<0>)               \
  X(kth_middle, FindKth<1>)             \
  X(kth_low, FindKth<2>)                \
  X(keep_largest, KeepLargest)          \
  X(split, Split)                       \
  X(draw, Select<NoGradient, true, true>)

#define PITH_CUDA_VALUES(X, name, T)                    \
  X(take_##name, ListPass<T, ListWork::take>)           \
  X(round_##name, ListPass<T, ListWork::round>)         \
  X(momentum_##name, CorrectMomentum<T>)                \
  X(give_back_##name, ListPass<T, ListWork::give_back>) \
  X(squares_##name, ListPass<T, ListWork::squares>)     \
  X(sum_values_##name, SumValues<T>)                    \
  X(scatter_##name, Scatter<T>)                         \
  X(convert_##name, Convert<T>)                         \
  X(decode_values_##name, DecodeValues<T>)              \
  X(put_product_##name, PutProduct<T>)

#define PITH_CUDA_LIST_KERNELS(X)     \
  PITH_CUDA_VALUES(X, f16, Half)      \
  PITH_CUDA_VALUES(X, f32, float)     \
  PITH_CUDA_VALUES(X, bf16, Bfloat)   \
  X(count_blocks, CountBlocks)        \
  X(store_words, StoreWords)          \
  X(sum_lists, SumLists)              \
  X(encode_indices, EncodeIndices)    \
  X(encode_values, EncodeValues)      \
  X(project, Project)                 \
  X(back_project, BackProject)        \
  X(add_product, AddProduct)          \
  X(find_index_heads, FindIndexHeads) \
  X(decode_indices, DecodeIndices)

#define PITH_CUDA_KERNELS(X)   \
  PITH_CUDA_INTEGER_KERNELS(X) \
  PITH_CUDA_FLOAT_KERNELS(X)   \
  PITH_CUDA_COMPLEX_KERNELS(X) \
  PITH_CUDA_BIT_KERNELS(X)     \
  PITH_CUDA_CAST_KERNELS(X)    \
  PITH_CUDA_SELECT_KERNELS(X)  \
  PITH_CUDA_LIST_KERNELS(X)

namespace pith::cuda {

enum class KernelName : std::uint16_t {
#define PITH_CUDA_NAME(name, ...) name,
  PITH_CUDA_KERNELS(PITH_CUDA_NAME)
#undef PITH_CUDA_NAME
      count
};
inline constexpr std::size_t kernel_count = static_cast<std::size_t>(KernelName::count);

struct KernelFacts {
  const char* symbol;
  unsigned threads;  // per block
  unsigned args_bytes;
  unsigned shared_bytes;
};
inline constexpr KernelFacts kernel_facts[kernel_count] = {
#define PITH_CUDA_FACTS(name, ...)                                          \
  {"pith_" #name, __VA_ARGS__::threads, sizeof(typename __VA_ARGS__::Args), \
   sizeof(typename __VA_ARGS__::Shared)},
    PITH_CUDA_KERNELS(PITH_CUDA_FACTS)
#undef PITH_CUDA_FACTS
};

}  // namespace pith::cuda
