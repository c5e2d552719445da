#include "kernels/scalar.hpp"

#include <cstdint>
#include <vector>

#include "kernels/element.hpp"

namespace pith::kernels::scalar {
namespace {

// Accessors return a value to compute with: the type itself, or float32 for narrow formats.
template <class T>
struct Native {
  using Value = T;
  static T get(const std::byte* bytes, std::size_t i) { return load<T>(bytes, i); }
  static void put(std::byte* bytes, std::size_t i, T value) { store(bytes, i, value); }
};

template <class Format>
struct Narrow {
  using Value = float;
  static float get(const std::byte* bytes, std::size_t i) {
    return decode<Format>(load<typename Format::Bits>(bytes, i));
  }
  template <class T>
  static void put(std::byte* bytes, std::size_t i, T value) {
    store(bytes, i, encode<Format>(static_cast<double>(value)));
  }
};

template <class Visitor>
void visit(DType type, Visitor visitor) {
  switch (type) {
    case DType::i8:
      return visitor(Native<std::int8_t>{});
    case DType::u8:
      return visitor(Native<std::uint8_t>{});
    case DType::i32:
      return visitor(Native<std::int32_t>{});
    case DType::u32:
      return visitor(Native<std::uint32_t>{});
    case DType::i64:
      return visitor(Native<std::int64_t>{});
    case DType::u64:
      return visitor(Native<std::uint64_t>{});
    case DType::f16:
      return visitor(Narrow<Float16>{});
    case DType::f32:
      return visitor(Native<float>{});
    case DType::f64:
      return visitor(Native<double>{});
    case DType::bf16:
      return visitor(Narrow<Bfloat16>{});
    case DType::f8e4m3:
      return visitor(Narrow<Float8e4m3>{});
    case DType::f8e5m2:
      return visitor(Narrow<Float8e5m2>{});
    case DType::c64:
    case DType::c128:
      return;  // never asked: their parts are visited
  }
}

template <class T>
T divide(T value, float divisor) {
  if constexpr (std::is_floating_point_v<T>) {
    return canonical(value / static_cast<T>(divisor));
  } else {
    return static_cast<T>(value / static_cast<std::int64_t>(divisor));
  }
}

template <>
std::uint64_t divide(std::uint64_t value, float divisor) {
  return value / static_cast<std::uint64_t>(divisor);
}

double load_float(const std::byte* bytes, std::size_t i, DType type) {
  double value = 0;
  visit(type, [&](auto access) { value = static_cast<double>(access.get(bytes, i)); });
  return value;
}

void store_float(std::byte* bytes, std::size_t i, DType type, double value) {
  switch (type) {
    case DType::f64:
      return store(bytes, i, canonical(value));
    case DType::f32:
      return store(bytes, i, canonical(static_cast<float>(value)));
    case DType::f16:
      return store(bytes, i, encode<Float16>(value));
    case DType::bf16:
      return store(bytes, i, encode<Bfloat16>(value));
    case DType::f8e4m3:
      return store(bytes, i, encode<Float8e4m3>(value));
    case DType::f8e5m2:
      return store(bytes, i, encode<Float8e5m2>(value));
    default:
      return;
  }
}

// The plain formula, of which C's own product of complex numbers differs where it gives NaN.
template <class Part>
void multiply_complex(std::byte* out, const std::byte* a, const std::byte* b, std::size_t count) {
  for (std::size_t i = 0; i < 2 * count; i += 2) {
    const auto a_real = load<Part>(a, i), a_imaginary = load<Part>(a, i + 1);
    const auto b_real = load<Part>(b, i), b_imaginary = load<Part>(b, i + 1);
    store(out, i, canonical(a_real * b_real - a_imaginary * b_imaginary));
    store(out, i + 1, canonical(a_real * b_imaginary + a_imaginary * b_real));
  }
}

void reduce_complex(std::byte* out, const std::byte* a, const std::byte* b, std::size_t count,
                    DType type, Op op) {
  if (op != Op::prod) return reduce(out, a, b, 2 * count, part_of(type), op);
  type == DType::c64 ? multiply_complex<float>(out, a, b, count)
                     : multiply_complex<double>(out, a, b, count);
}

}  // namespace

void reduce(std::byte* out, const std::byte* a, const std::byte* b, std::size_t count, DType type,
            Op op) {
  if (is_complex(type)) return reduce_complex(out, a, b, count, type, op);
  visit(type, [=](auto access) {
    for (std::size_t i = 0; i < count; ++i) {
      access.put(out, i, combine_pair(access.get(a, i), access.get(b, i), op));
    }
  });
}

void reduce_many(std::byte* out, const std::byte* const* in, int n, std::size_t count, DType type,
                 Op op) {
  const std::size_t bytes = count * size_of(type);
  std::vector<std::byte> sum(in[0], in[0] + bytes);
  for (int k = 1; k < n; ++k) reduce(sum.data(), sum.data(), in[k], count, type, op);
  if (bytes != 0) std::memcpy(out, sum.data(), bytes);
}

void finish_avg(std::byte* data, std::size_t count, DType type, float divisor) {
  if (is_complex(type)) return finish_avg(data, 2 * count, part_of(type), divisor);
  visit(type, [=](auto access) {
    for (std::size_t i = 0; i < count; ++i) {
      access.put(data, i, divide(access.get(data, i), divisor));
    }
  });
}

void cast(std::byte* out, DType out_type, const std::byte* in, DType in_type, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    store_float(out, i, out_type, load_float(in, i, in_type));
  }
}

}  // namespace pith::kernels::scalar
