// The density of a vector's next calls (density=auto), or the form in which all of it is sent: what
// gets the most out of a second.
//
// That is the least (time between calls + time of a call) / gain. The gain of a density is the
// share of the gradient's norm that it sends: with feedback the rest comes later, so that a call is
// worth more than its share of the squares. (On the digits densities of 0.01, 0.003 and 0.001 take
// 1.2, 1.8 and 2 times as many steps to 97 % as dense calls, medians of three seeds, where they
// send far smaller shares.) Without feedback it is the share of the squares, the compression
// throughput of GraVAC [S. Tyagi and M. Swany, IEEE CLOUD 2023], which AR-Topk's authors weigh
// against time with fixed weights. Gains of all densities come from one sample, so none is tried
// for its gain. A dense call has the gain 1. What is sent with few bits is the gradient and noise,
// whose squares cost as many more steps: 1 / gain is 1 + 2 w, w the share of the squares that
// coding loses, as each rank's values and their sums are coded. Times follow from two numbers of
// the link, fitted to the times of earlier calls. With a weight w that is not 0.5: time^2w /
// gain^(2 - 2w).
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
// changed since: then it returns true. Relative errors matter.
bool add_call(LinkSums& link, const LinkCost& nominal, CallCost cost, double seconds);
// The link that fits the calls best, and `nominal` where they tell nothing; only alpha and beta.
LinkCost fitted_link(const LinkSums& link, const LinkCost& nominal);

struct DensityChoice {
  double density = 0;
  Form form = Form::none;

  bool operator==(const DensityChoice&) const = default;
};
inline DensityChoice present_of(const Spec& spec) { return {spec.density, spec.form}; }
// A candidate of the spec; or 1 for a dense call, or one in a form. The spec's present choice,
// unless another is better by 5 %. `control` tells what is known of elected forms.
DensityChoice choose_density(const Spec& spec, std::size_t count, int ranks, const LinkCost& link,
                             const DensityFacts& facts, const DensityControl& control = {});
// Counts what the last call, in the spec's present form, sent of what the sample promises. What is
// known of other forms fades, so that they are tried again.
void learn_share(const Spec& spec, const DensityFacts& facts, DensityControl& control);

// On the way from the spec's present choice to the best one. After a change one call tells too
// little of a link to foretell calls of many times its bytes, which may take seconds.
DensityChoice cautious_choice(const Spec& spec, DensityChoice best, std::size_t count, int ranks);
// Whether a call is due that has other bytes than those before, which alone do not tell what a byte
// costs: at first, 16 calls after the last one where the link has changed, else 64. Not with
// objective=paper.
bool is_probe_due(const Spec& spec, const DensityControl& control, std::uint64_t step);
// A candidate of some half the bytes; if there is none, of twice to four times as many; if there is
// none, the present choice.
DensityChoice other_bytes(const Spec& spec, std::size_t count, int ranks);
// Calls until ranks agree again: as few as cost a twenty-fifth of the time, since links
// change, but twelve at most.
std::uint64_t density_interval(const Spec& spec, std::size_t count, int ranks, const LinkCost& link,
                               const DensityFacts& facts);

}  // namespace pith
