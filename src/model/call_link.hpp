// What messages between ranks cost, learnt from whole calls: what an algorithm's cost function says
// of its messages and bytes is what its time tells of a message and a byte.
#pragma once

#include <array>
#include <span>

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
};

// The link on which these calls would take their times, as nearly as one can; near `guess` in what
// they do not tell.
LinkCost fit_link(const Model& model, std::span<const CallTime> calls, const LinkGuess& guess);

// What these calls leave unknown of the logarithms of both. `fitted` has the doubts before them.
struct LinkDoubt {
  double alpha = 0;
  double beta = 0;
};
LinkDoubt doubt_of(const Model& model, std::span<const CallTime> calls, const LinkGuess& fitted);

// Links of which only alpha, or only beta, is another than `before`, and on which the call takes
// its time.
std::array<LinkCost, 2> possible_links(const Model& model, const CallTime& call,
                                       const LinkCost& before);

// Whether choices between algorithms may differ by it.
bool is_another_link(const LinkCost& one, const LinkCost& other);

}  // namespace pith
