// Element types and reduction operations. The values equal those of pith.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pith {

enum class DType : std::uint8_t { i8, u8, i32, u32, i64, u64, f16, f32, f64, bf16, f8e4m3, f8e5m2 };
inline constexpr int dtype_count = 12;

enum class Op : std::uint8_t { sum, prod, max, min, avg, band, bor, bxor, land, lor, lxor };
inline constexpr int op_count = 11;

inline constexpr std::uint8_t dtype_bytes[dtype_count] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
constexpr std::size_t size_of(DType type) { return dtype_bytes[static_cast<int>(type)]; }

constexpr bool is_float(DType type) { return type >= DType::f16; }

// Whether the operation combines truth values: any number but 0 is true, results are 0 or 1.
constexpr bool is_logical(Op op) { return op >= Op::land; }
// Operations on bits and truth values are defined for integers only.
constexpr bool is_defined(Op op, DType type) { return op < Op::band || !is_float(type); }

// The names that nccl-tests prints.
constexpr std::string_view name_of(DType type) {
  constexpr std::string_view names[dtype_count] = {"int8",   "uint8",    "int32",  "uint32",
                                                   "int64",  "uint64",   "half",   "float",
                                                   "double", "bfloat16", "f8e4m3", "f8e5m2"};
  return names[static_cast<int>(type)];
}

constexpr std::string_view name_of(Op op) {
  constexpr std::string_view names[op_count] = {"sum", "prod", "max",  "min", "avg", "band",
                                                "bor", "bxor", "land", "lor", "lxor"};
  return names[static_cast<int>(op)];
}

}  // namespace pith
