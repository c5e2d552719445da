// What a call elected whose ranks all send their values at the same elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compress/scheme.hpp"
#include "frame/compressors.hpp"
#include "frame/team.hpp"

namespace pith_perf {

struct Election {
  std::vector<std::uint8_t> elected;  // of each element, not 0 where it was; the same everywhere
  std::int64_t wrong = 0;             // what contradicts the scheme's rules
};

// Gradient plus residual before a call, or the residual after it, of this thread's ranks.
using Vectors = std::vector<std::vector<float>>;

// One rank's: the k largest magnitudes of the leader's sum. Who may lead is the scheme's to say.
Election election_of_leader(const pith::Spec& spec, const Team& team, std::size_t step,
                            const Vectors& sums, const Compressors& compressors);

// Of owners: what has left some rank's sum. Each element must have a rank that has elected it, with
// a sum as large as that rank's threshold, and none may have been elected twice, but for what the
// scheme moves unelected. Where the partitions were is not known, so neither is what should have
// been elected and was not.
Election election_of_owners(const pith::Spec& spec, const Team& team, const Vectors& sums,
                            const Vectors& residuals, const Compressors& compressors);

}  // namespace pith_perf
