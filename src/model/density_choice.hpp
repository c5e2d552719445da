// The density of a vector's next calls (density=auto): the one that gets the most out of a second.
//
// That is the least (time between calls + time of a call) / gain, where the gain of a density is
// the share of the gradient's squares that it sends. (The compression throughput of GraVAC [S.
// Tyagi and M. Swany, IEEE CLOUD 2023], which AR-Topk's authors weigh against time with fixed
// weights.) Gains of all densities come from one sample, so none is tried for its gain. Times
// follow from two numbers of the link, fitted to the times of earlier calls. With a weight w that
// is not 0.5: time^2w / gain^(2 - 2w).
//
// objective=paper: as AR-Topk's authors do it [S. Tyagi and M. Swany, IEEE BigData 2023], but for
// their trial iterations. Both a call's time and 1 / gain are scaled to 0..1, between the least and
// the most among those densities that none betters in both. The density has the least of
// max(w * time, (1 - w) / gain), an achievement scalarising function. As scaling takes out what
// bytes cost, the link hardly matters. Dense calls must be faster than that density's.
#pragma once

#include "collectives/chooser.hpp"
#include "compress/density_control.hpp"
#include "model/compressed_cost.hpp"

namespace pith {

// Counts a call that took `seconds`; older ones count less, and hardly where the link must have
// changed since. Relative errors matter.
void add_call(LinkSums& link, const LinkCost& nominal, const CallCost& cost, double seconds);
// The link that fits the calls best, and `nominal` where they tell nothing; only alpha and beta.
LinkCost fitted_link(const LinkSums& link, const LinkCost& nominal);
// A candidate of the spec, or 1 for a dense call. The spec's present density, unless another is
// better by 5 %.
double choose_density(const Spec& spec, std::size_t count, int ranks, const LinkCost& link,
                      const DensityFacts& facts);

// On the way from the spec's present density to the best one. After a change one call tells too
// little of a link to foretell calls of many times its bytes, which may take seconds.
double cautious_density(const Spec& spec, double best);
// Calls until ranks agree again: as few as cost a twenty-fifth of the time, since links
// change, but twelve at most.
std::uint64_t density_interval(const Spec& spec, std::size_t count, int ranks, const LinkCost& link,
                               const DensityFacts& facts);

}  // namespace pith
