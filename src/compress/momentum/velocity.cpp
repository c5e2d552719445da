#include "compress/momentum/velocity.hpp"

#include <algorithm>

namespace pith {

MomentumKernel::Args Velocity::next(std::size_t most) {
  const std::size_t begin = corrected_;
  corrected_ += std::min(most, memory_.count() - begin);
  return {.velocity = memory_.data() + begin,
          .gradient = gradient_ ? gradient_ + begin * size_of(type_) : nullptr,
          .type = type_,
          .count = corrected_ - begin,
          .momentum = rule_.momentum,
          .factor = factor_};
}

}  // namespace pith
