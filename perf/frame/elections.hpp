// Reconstructs what a call elected, for schemes whose ranks all send the same elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compress/scheme.hpp"
#include "frame/compressors.hpp"
#include "frame/team.hpp"

namespace pith_perf {

struct Election {
  std::vector<std::uint8_t> elected;  // per element: not 0 if elected; the same on all ranks
  std::int64_t wrong = 0;             // violations of the scheme's rules
};

// Gradient plus residual before a call, or the residual after it, of this thread's ranks.
using Vectors = std::vector<std::vector<float>>;

// For schemes with a leader: the k largest magnitudes of the leader's sum. The scheme defines who
// may lead.
Election election_of_leader(const pith::Spec& spec, const Team& team, std::size_t step,
                            const Vectors& sums, const Compressors& compressors);

// For schemes with owners: everything that was removed from some rank's sum. Each element must have
// been elected by a rank whose sum reaches its threshold, and by no other, except what the scheme
// sends unelected. Missing elections are not detected, since the partitions are unknown.
Election election_of_owners(const pith::Spec& spec, const Team& team, const Vectors& sums,
                            const Vectors& residuals, const Compressors& compressors);

}  // namespace pith_perf
