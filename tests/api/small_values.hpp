// Test values whose reductions every type holds exactly, and what comes of them.
#pragma once

#include "ranks.hpp"

namespace ranks {

// Small enough that every type adds or multiplies five of them exactly; most take more.
inline unsigned value_of(pithRedOp_t op, int rank, std::size_t i) {
  const std::uint64_t random = mix(i + 1, static_cast<std::uint64_t>(rank) + 7) >> 20;
  if (op == pithProd) return 1 + (random & 1);
  if (op == pithSum) return random & 1;
  if (op == pithAvg) return static_cast<unsigned>(i & 1);
  if (op == pithBor || op == pithLor) return random & random >> 3 & random >> 6 & 7;
  return random & 7;
}

inline unsigned result_of(pithRedOp_t op, int size, std::size_t i) {
  unsigned result = value_of(op, 0, i);
  if (op == pithAvg) return result;
  if (op >= pithLand) result = result != 0 ? 1 : 0;
  for (int r = 1; r < size; ++r) {
    const unsigned next = value_of(op, r, i);
    if (op == pithSum) result += next;
    if (op == pithProd) result *= next;
    if (op == pithMax) result = std::max(result, next);
    if (op == pithMin) result = std::min(result, next);
    if (op == pithBand) result &= next;
    if (op == pithBor) result |= next;
    if (op == pithBxor) result ^= next;
    if (op == pithLand) result = result != 0 && next != 0 ? 1 : 0;
    if (op == pithLor) result = result != 0 || next != 0 ? 1 : 0;
    if (op == pithLxor) result = (result != 0) != (next != 0) ? 1 : 0;
  }
  return result;
}

// Whether the type has the operation, and holds whatever comes of the values of so many ranks, in
// any order.
inline bool is_exact(pithDataType_t type, pithRedOp_t op, int size) {
  if (op >= pithBand) return type < pithFloat16;
  if (op == pithMax || op == pithMin) return type < pithComplex64;
  if (op == pithSum) {
    return (type != pithFloat8e4m3 || size <= 16) && (type != pithFloat8e5m2 || size <= 8);
  }
  if (op != pithProd) return true;
  if (type == pithFloat8e4m3) return size <= 8;
  return (type != pithFloat16 && type != pithFloat8e5m2) || size <= 15;
}

// And the sums that go from rank to rank on the way to an average.
inline bool is_exact_throughout(pithDataType_t type, pithRedOp_t op, int size) {
  return is_exact(type, op == pithAvg ? pithSum : op, size);
}

}  // namespace ranks
