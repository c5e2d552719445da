// What values are when they have travelled, by the plain twin.
#pragma once

#include <algorithm>
#include <cstddef>

#include "kernels/scalar.hpp"

namespace pith::test {

inline float rounded(float value, DType type) {
  if (type == DType::f32) return value;
  if (type == DType::f16) value = std::clamp(value, -65504.0f, 65504.0f);
  std::byte code[2];
  float back = 0;
  kernels::scalar::cast(code, type, reinterpret_cast<const std::byte*>(&value), DType::f32, 1);
  kernels::scalar::cast(reinterpret_cast<std::byte*>(&back), DType::f32, code, type, 1);
  return back;
}

}  // namespace pith::test
