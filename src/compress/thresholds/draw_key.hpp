// What a rank's draws of a call depend on.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/mix.hpp"

namespace pith {

// `tensor`: its place in the call's group.
constexpr std::uint64_t draw_key(std::uint64_t seed, std::uint64_t step, std::size_t tensor,
                                 int rank) {
  const std::uint64_t of_call = mix(mix(0, seed), step);
  return mix(mix(of_call, tensor), static_cast<std::uint64_t>(rank));
}

}  // namespace pith
