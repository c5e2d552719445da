#include "model/density_choice.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "compress/scheme.hpp"

namespace pith {

namespace {

LinkSums scaled(const LinkSums& sums, double factor) {
  return {factor * sums.messages_messages, factor * sums.messages_bytes, factor * sums.bytes_bytes,
          factor * sums.messages_seconds, factor * sums.bytes_seconds};
}

LinkSums with_call(LinkSums sums, const CallCost& cost, double seconds) {
  constexpr double least_share = 0.05;  // the cores may be faster than assumed
  const double messages = cost.messages / seconds;
  const double bytes = cost.bytes / seconds;
  const double on_link = std::max(1 - cost.work_s / seconds, least_share);
  sums.messages_messages += messages * messages;
  sums.messages_bytes += messages * bytes;
  sums.bytes_bytes += bytes * bytes;
  sums.messages_seconds += messages * on_link;
  sums.bytes_seconds += bytes * on_link;
  return sums;
}

}  // namespace

// Where no link explains this call and those before, it has changed. That has to be noticed: calls
// on a fast link weigh more, by the squares of their times.
void add_call(LinkSums& link, const LinkCost& nominal, const CallCost& cost, double seconds) {
  constexpr double remembered = 0.8;
  constexpr double hardly = 1e-6;
  constexpr double tolerance = 1.5;
  if (!(seconds > 0)) return;
  const LinkSums all = with_call(scaled(link, remembered), cost, seconds);
  const LinkCost found = fitted_link(all, nominal);
  const double ratio = seconds / cost.seconds(found.alpha, found.beta);
  const bool changed = ratio > tolerance || ratio < 1 / tolerance;
  link = changed ? with_call(scaled(link, hardly), cost, seconds) : all;
}

// Least squares for multiples of the nominal values. That these are near one is believed so little
// that it only decides what no call tells.
LinkCost fitted_link(const LinkSums& link, const LinkCost& nominal) {
  constexpr double belief = 1e-10;
  constexpr double least = 1e-3;
  const double a = link.messages_messages * nominal.alpha * nominal.alpha + belief;
  const double b = link.bytes_bytes * nominal.beta * nominal.beta + belief;
  const double both = link.messages_bytes * nominal.alpha * nominal.beta;
  const double of_a = link.messages_seconds * nominal.alpha + belief;
  const double of_b = link.bytes_seconds * nominal.beta + belief;
  const double determinant = a * b - both * both;
  double alpha = determinant > 0 ? (of_a * b - of_b * both) / determinant : 1;
  double beta = determinant > 0 ? (of_b * a - of_a * both) / determinant : 1;
  // Neither can be negative: then the other alone has to explain the times.
  if (alpha < least) {
    alpha = least;
    beta = (of_b - both * alpha) / b;
  } else if (beta < least) {
    beta = least;
    alpha = (of_a - both * beta) / a;
  }
  return {std::max(alpha, least) * nominal.alpha, std::max(beta, least) * nominal.beta,
          nominal.gamma};
}

double choose_density(const Spec& spec, std::size_t count, int ranks, const LinkCost& link,
                      const DensityFacts& facts) {
  constexpr double worthwhile = 0.95;
  constexpr double least_gain = 1e-9;
  const auto price = [&](const CallCost& cost, double gain) {
    return (facts.between_s + cost.seconds(link.alpha, link.beta)) / std::max(gain, least_gain);
  };
  const auto price_of = [&](std::size_t i) {
    return price(compressed_cost(spec, candidate_density(spec, i), count, ranks), facts.gains[i]);
  };
  std::size_t best = 0;
  for (std::size_t i = 1; i < density_candidates; ++i) {
    if (price_of(i) < price_of(best)) best = i;
  }
  const double dense = spec.may_bypass ? price(dense_cost(count, ranks), 1)
                                       : std::numeric_limits<double>::infinity();
  const bool is_dense = dense < price_of(best);
  const double now = spec.density >= 1 ? dense : price_of(nearest_candidate(spec, spec.density));
  if (std::min(dense, price_of(best)) > worthwhile * now) return spec.density;
  return is_dense ? 1 : candidate_density(spec, best);
}

double cautious_density(const Spec& spec, double best) {
  constexpr double growth = 4;
  const double present = spec.density;
  const double most = candidate_density(spec, density_candidates - 1);
  // A dense call has some three times the bytes of one with the largest density.
  if (best <= growth * present || present >= most) return best;
  return candidate_density(spec, nearest_candidate(spec, std::min(growth * present, most)));
}

// One to time a call that all begin together, and one to draw the conclusion.
std::uint64_t density_interval(const Spec& spec, std::size_t count, int ranks, const LinkCost& link,
                               const DensityFacts& facts) {
  constexpr double share = 0.04;
  constexpr double agreements = 2;
  constexpr double least = 4;
  constexpr double most = 12;
  const double agreeing = agreements * std::ceil(std::log2(double(ranks))) * link.alpha;
  const CallCost call = spec.density >= 1 ? dense_cost(count, ranks)
                                          : compressed_cost(spec, spec.density, count, ranks);
  const double seconds = facts.between_s + call.seconds(link.alpha, link.beta);
  const double calls = std::ceil(agreeing / (share * seconds));
  return static_cast<std::uint64_t>(std::clamp(calls, least, most));
}

}  // namespace pith
