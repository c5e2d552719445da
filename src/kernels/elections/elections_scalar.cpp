#include <cmath>

#include "kernels/coded_block.hpp"
#include "kernels/elections/elections.hpp"
#include "kernels/element.hpp"
#include "kernels/scalar.hpp"

namespace pith::kernels::scalar {

void correct_momentum(const MomentumKernel::Args& args) {
  for (std::size_t i = 0; i < args.count; ++i) {
    const float old = std::isfinite(args.velocity[i]) ? args.velocity[i] : 0.0f;
    float gradient = 0;
    if (args.gradient) {
      cast(reinterpret_cast<std::byte*>(&gradient), DType::f32,
           args.gradient + i * size_of(args.type), args.type, 1);
    }
    const float kept = args.momentum * old;
    const float given = args.factor * gradient;
    args.velocity[i] = kept + given;
  }
}

void draw(const DrawKernel::Args& args) {
  PassResult result;
  for (std::size_t i = 0; i < args.count; ++i) {
    const float value = args.accumulator[i];
    const std::uint32_t index = args.first + static_cast<std::uint32_t>(i);
    result.squares += double(value) * double(value);
    // In (0, 1].
    const float drawn = static_cast<float>((drawn_bits(args.key, index) >> 8) + 1) * 0x1p-24f;
    if (!(std::fabs(value) >= drawn * args.sure)) continue;
    const float sent = std::copysign(std::max(std::fabs(value), args.sure), value);
    args.indices[result.selected] = index;
    args.values[result.selected++] = sent;
    args.accumulator[i] = value - sent;
  }
  *args.result = result;
}

}  // namespace pith::kernels::scalar
