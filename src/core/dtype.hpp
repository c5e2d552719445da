// Element types and reduction operations. The values equal those of pith.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pith {

enum class DType : std::uint8_t {
  i8,
  u8,
  i32,
  u32,
  i64,
  u64,
  f16,
  f32,
  f64,
  bf16,
  f8e4m3,
  f8e5m2,
  c64,
  c128
};
inline constexpr int dtype_count = 14;

enum class Op : std::uint8_t { sum, prod, max, min, avg, band, bor, bxor, land, lor, lxor };
inline constexpr int op_count = 11;

inline constexpr std::uint8_t dtype_bytes[dtype_count] = {1, 1, 4, 4, 8, 8, 2,
                                                          4, 8, 2, 1, 1, 8, 16};
constexpr std::size_t size_of(DType type) { return dtype_bytes[static_cast<int>(type)]; }

// Room for an element of any type.
using ElementBits = std::array<std::uint64_t, 2>;

constexpr bool is_integer(DType type) { return type < DType::f16; }
constexpr bool is_complex(DType type) { return type >= DType::c64; }

// The type of a complex number's real and imaginary part, which lie one behind the other. Sums and
// averages of n complex numbers are those of the 2n parts.
constexpr DType part_of(DType type) { return type == DType::c64 ? DType::f32 : DType::f64; }

// Whether the operation combines truth values: any number but 0 is true, results are 0 or 1.
constexpr bool is_logical(Op op) { return op >= Op::land; }
// Operations on bits and truth values are defined for integers only. Complex numbers have no order.
constexpr bool is_defined(Op op, DType type) {
  const bool orders = op == Op::max || op == Op::min;
  return op < Op::band ? !(orders && is_complex(type)) : is_integer(type);
}

// The names that nccl-tests prints; of complex types, which it lacks, NumPy's.
constexpr std::string_view name_of(DType type) {
  constexpr std::string_view names[dtype_count] = {
      "int8",  "uint8",  "int32",    "uint32", "int64",  "uint64",    "half",
      "float", "double", "bfloat16", "f8e4m3", "f8e5m2", "complex64", "complex128"};
  return names[static_cast<int>(type)];
}

constexpr std::string_view name_of(Op op) {
  constexpr std::string_view names[op_count] = {"sum", "prod", "max",  "min", "avg", "band",
                                                "bor", "bxor", "land", "lor", "lxor"};
  return names[static_cast<int>(op)];
}

}  // namespace pith
