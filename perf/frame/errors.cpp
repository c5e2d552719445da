#include "frame/errors.hpp"

#include <algorithm>
#include <cmath>

namespace pith_perf {

void Errors::add(double error, double allowed) {
  const double size = std::abs(error);
  wrong += !(size <= allowed);  // a NaN is wrong
  largest = std::max(largest, std::isnan(size) ? INFINITY : size);
  squares += size * size;
  ++elements;
}

void Errors::merge(const Errors& other) {
  wrong += other.wrong;
  largest = std::max(largest, other.largest);
  squares += other.squares;
  elements += other.elements;
}

double rounding_of(pith::DType type) {
  if (type == pith::DType::bf16) return 0x1p-8;
  return type == pith::DType::f16 ? 0x1p-11 : 0;
}

double least_step_of(pith::DType type) { return type == pith::DType::f16 ? 0x1p-24 : 0; }

double rounding_of_additions(int terms) {
  const double lost = 0x1p-24 * (terms - 1);
  return lost / (1 - lost);
}

double allowed_of_result(pithDataType_t type, double value) {
  const auto rounded_to = static_cast<pith::DType>(type);
  return std::abs(value) * std::max(rounding_of(rounded_to), float_rounding) +
         least_step_of(rounded_to);
}

}  // namespace pith_perf
