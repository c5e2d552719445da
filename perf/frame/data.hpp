// Test data whose results are known exactly. An element is a function of its rank, its index and
// the round, so that wrong, missing and duplicate contributions all show.
//
// Integers use all their bits and wrap. Floats that are reduced are integers (for prod powers of
// two) small enough that every partial result, in any order, is exact in their type. Data that is
// only copied is random bits.
#pragma once

#include <pith/pith.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace pith_perf {

// nccl-tests' names, in the order of the enumerators.
inline constexpr std::array<std::string_view, 12> type_names = {
    "int8", "uint8", "int32",  "uint32",   "int64",  "uint64",
    "half", "float", "double", "bfloat16", "f8e4m3", "f8e5m2"};
inline constexpr std::array<std::string_view, 12> op_names = {
    "sum", "prod", "max", "min", "avg", "band", "bor", "bxor", "land", "lor", "lxor", "mulsum"};
// Stands for an operation of pithRedOpCreatePreMulSum, each rank with its own premultiplier().
inline constexpr pithRedOp_t mulsum = pithNumOps;

// Whether an operation is defined for a type: those on bits and truth values only for integers.
constexpr bool is_defined(pithRedOp_t op, pithDataType_t type) {
  return op < pithBand || op > pithLxor || type < pithFloat16;
}

std::size_t size_of(pithDataType_t type);

struct Round {
  pithDataType_t type = pithFloat32;
  std::optional<pithRedOp_t> op;  // empty: data is only copied
  int ranks = 1;
  unsigned number = 0;
};

// Fills in elements [first, first + count) of what `rank` contributes.
void fill(void* data, std::size_t count, int rank, std::size_t first, const Round& round);
// The number of elements that differ in any bit from those of `rank`.
std::int64_t count_not_of(const void* data, std::size_t count, int rank, std::size_t first,
                          const Round& round);
// A number of this type.
std::array<std::byte, 8> premultiplier(pithDataType_t type, int rank);
// The number of elements that are not the reduction over all ranks. Precondition: `round` has an
// op.
std::int64_t count_not_reduced(const void* data, std::size_t count, std::size_t first,
                               const Round& round);

}  // namespace pith_perf
