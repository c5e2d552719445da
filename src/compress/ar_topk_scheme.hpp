// The keys of AR-Topk.
#pragma once

#include "compress/spec.hpp"

namespace pith {

enum class Election : std::uint8_t { staleness, variance, variance_lagged };
enum class Score : std::uint8_t { compressed, raw };

inline Election election_of(const Spec& spec) { return static_cast<Election>(spec.choices[0]); }
inline Score score_kind_of(const Spec& spec) { return static_cast<Score>(spec.choices[1]); }

}  // namespace pith
