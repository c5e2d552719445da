// Errors of compressed calls' results, and what rounding to a type may add to them.
#pragma once

#include <pith/pith.h>

#include <cstddef>
#include <cstdint>

#include "core/dtype.hpp"

namespace pith_perf {

struct Errors {
  std::int64_t wrong = 0;  // elements outside the rounding error of their type
  double largest = 0;      // of result minus expected value
  double squares = 0;      // sum of squared errors
  std::size_t elements = 0;

  void add(double error, double allowed);
  void merge(const Errors& other);
};

// Of a sum in float32.
inline constexpr double float_rounding = 0x1p-22;

// The relative error of one conversion: half a unit in the last place.
double rounding_of(pith::DType type);
// Below the smallest normal number of float16 the step size is constant.
double least_step_of(pith::DType type);
// How far a float32 sum of `terms` numbers, added in any order, may be off, as a part of the sum of
// their magnitudes: each of the terms - 1 additions loses at most half a unit in the last place.
double rounding_of_additions(int terms);
// By how much a sum in float32 may be off that was rounded to this type.
double allowed_of_result(pithDataType_t type, double value);

}  // namespace pith_perf
