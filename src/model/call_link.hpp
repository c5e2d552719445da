// What messages between ranks cost, learnt from whole calls: what an algorithm's cost function says
// of its messages and bytes is what its time tells of a message and a byte.
#pragma once

#include <span>
#include <vector>

#include "model/call_time.hpp"
#include "model/model.hpp"

namespace pith {

// A link as it may be, with the doubts of the logarithms of what it costs.
struct LinkGuess {
  static constexpr double hardly_known = 1.5;
  static constexpr double by_round_trip = 0.3;  // rounded, and queues add to it

  LinkCost link;
  double alpha_doubt = hardly_known;
  double beta_doubt = hardly_known;
  bool near = false;  // see link_with
};

// The link on which calls would take their times, as nearly as one can, with what they leave
// unknown of the logarithms of what it costs.
struct LinkFit {
  LinkCost link;
  double alpha_doubt = 0;
  double beta_doubt = 0;
};

// Near `guess` in what the calls do not tell.
LinkFit fit_link(const Model& model, std::span<const CallTime> calls, const LinkGuess& guess);

// All links on which they would: of each alpha, by factors of 1.4, the beta that fits best, where
// it fits not much worse than the best of all. `start`: of the search, and what is returned of no
// calls.
std::vector<LinkCost> fitting_links(const Model& model, std::span<const CallTime> calls,
                                    const LinkCost& start);

// The logarithm of the least cost of a call on these links, with what calls wait for lost packets.
double least_log_cost(const Model& model, const CallTime& call, std::span<const LinkCost> links);

// Whether the times of calls are surely those of the one link rather than of the other.
bool explains_better(const LinkCost& one, const LinkCost& other, const Model& model,
                     std::span<const CallTime> calls);

// Whether choices between algorithms may differ by it.
bool is_another_link(const LinkCost& one, const LinkCost& other);

}  // namespace pith
