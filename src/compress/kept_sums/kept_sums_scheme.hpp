// The key of the schemes that deliver the largest of the sums.
#pragma once

#include "compress/spec.hpp"

namespace pith {

// Which sums are kept: each rank of a share its equal part of them, or all ranks what reaches a
// common threshold. Not a key for users: spardl and ok-topk.
enum class Keep : std::uint8_t { by_share, by_threshold };

inline Keep keep_of(const Spec& spec) { return static_cast<Keep>(spec.choices[0]); }

}  // namespace pith
