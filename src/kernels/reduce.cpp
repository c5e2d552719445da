#include "kernels/reduce.hpp"

#include <algorithm>
#include <cassert>
#include <type_traits>

#include "kernels/combine.hpp"
#include "kernels/element.hpp"
#include "kernels/scalar.hpp"

namespace pith::kernels {
namespace {

// Up to this size, element by element is faster than the dispatch and padded copies.
constexpr std::size_t short_bytes = 32;

// reduce_many folds blocks of this size, so that the running result stays in the L1 cache.
constexpr std::size_t block_bytes = 16 * 1024;

void combine_complex(const Combine& call) {
  if (call.op == Op::prod) return multiply_complex(call);
  Combine parts = call;
  parts.count *= 2;
  parts.type = part_of(call.type);
  combine_floats(parts);
}

void dispatch(const Combine& call) {
  if (is_integer(call.type)) return combine_integers(call);
  if (is_complex(call.type)) return combine_complex(call);
  if (call.type == DType::f32 || call.type == DType::f64) return combine_floats(call);
  combine_narrow_floats(call);
}

template <class T>
void combine_short(std::byte* out, const std::byte* a, const std::byte* b, std::size_t count,
                   Op op) {
  for (std::size_t i = 0; i < count; ++i) {
    store(out, i, combine_pair(load<T>(a, i), load<T>(b, i), op));
  }
}

template <class T>
void divide(std::byte* data, std::size_t count, float by) {
  // Computed in T, as wider division is slower; but in int for 8 bits, which need not hold `by`.
  using Wide = std::conditional_t<sizeof(T) == 1, int, T>;
  const auto divisor = static_cast<Wide>(by);
  for (std::size_t i = 0; i < count; ++i) {
    store(data, i, static_cast<T>(static_cast<Wide>(load<T>(data, i)) / divisor));
  }
}

}  // namespace

void combine_scalar(const Combine& call) {
  const std::size_t bytes = call.count * size_of(call.type);
  if (call.divisor != 0) {
    kernels::copy(call.out, call.a, bytes);
    scalar::finish_avg(call.out, call.count, call.type, call.divisor);
  } else {
    scalar::reduce(call.out, call.a, call.b, call.count, call.type, call.op);
  }
  if (call.second_out != nullptr) kernels::copy(call.second_out, call.out, bytes);
}

void reduce(std::byte* out, const std::byte* a, const std::byte* b, std::size_t count, DType type,
            Op op, Stores stores) {
  if (count * size_of(type) <= short_bytes) {
    switch (type) {
      case DType::i32:
        return combine_short<std::int32_t>(out, a, b, count, op);
      case DType::u32:
        return combine_short<std::uint32_t>(out, a, b, count, op);
      case DType::i64:
        return combine_short<std::int64_t>(out, a, b, count, op);
      case DType::u64:
        return combine_short<std::uint64_t>(out, a, b, count, op);
      case DType::f32:
        return combine_short<float>(out, a, b, count, op);
      case DType::f64:
        return combine_short<double>(out, a, b, count, op);
      default:
        break;
    }
  }
  dispatch({out, nullptr, a, b, count, type, op, stores});
}

void reduce_to_two(std::byte* out1, std::byte* out2, const std::byte* a, const std::byte* b,
                   std::size_t count, DType type, Op op, Stores stores) {
  dispatch({out1, out2, a, b, count, type, op, stores});
}

void reduce_many(std::byte* out, const std::byte* const* in, int n, std::size_t count, DType type,
                 Op op, Stores stores) {
  assert(n >= 1);
  if (n == 1) return kernels::copy(out, in[0], count * size_of(type), stores);
  if (n == 2) return reduce(out, in[0], in[1], count, type, op, stores);

  // A block's result is kept apart until all inputs of the block are read, as `out` may be one of
  // them.
  alignas(64) std::byte block[block_bytes];
  const std::size_t block_count = block_bytes / size_of(type);
  for (std::size_t begin = 0; begin < count; begin += block_count) {
    const std::size_t offset = begin * size_of(type);
    const std::size_t length = std::min(block_count, count - begin);
    reduce(block, in[0] + offset, in[1] + offset, length, type, op);
    for (int k = 2; k < n - 1; ++k) reduce(block, block, in[k] + offset, length, type, op);
    reduce(out + offset, block, in[n - 1] + offset, length, type, op, stores);
  }
}

void finish_avg(std::byte* data, std::size_t count, DType type, float divisor) {
  assert(divisor > 0);
  switch (type) {
    case DType::i8:
      return divide<std::int8_t>(data, count, divisor);
    case DType::u8:
      return divide<std::uint8_t>(data, count, divisor);
    case DType::i32:
      return divide<std::int32_t>(data, count, divisor);
    case DType::u32:
      return divide<std::uint32_t>(data, count, divisor);
    case DType::i64:
      return divide<std::int64_t>(data, count, divisor);
    case DType::u64:
      return divide<std::uint64_t>(data, count, divisor);
    default:
      break;
  }
  dispatch({data, nullptr, data, data, count, type, Op::sum, Stores::cached, divisor});
}

}  // namespace pith::kernels
