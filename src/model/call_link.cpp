#include "model/call_link.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace pith {

namespace {

// Of a call: seconds in all, and by its messages and its bytes.
struct Parts {
  double all = 0;
  double by_alpha = 0;
  double by_beta = 0;
};

// By small changes: the cost is linear in both, but for pieces that go at the same time.
Parts parts_of(const Model& model, const CallTime& call, const LinkCost& link) {
  constexpr double small = 1e-3;
  const auto cost = [&](const LinkCost& on) {
    return model.cost(*call.algorithm, call.bytes, call.variant, &on);
  };
  LinkCost later = link;
  LinkCost slower = link;
  later.alpha *= 1 + small;
  slower.beta *= 1 + small;
  const double all = cost(link);
  return {all, (cost(later) - all) / small, (cost(slower) - all) / small};
}

constexpr double call_doubt = 0.2;  // how wrong cost functions are, noise included
constexpr double call_certainty = 1 / (call_doubt * call_doubt);

// Of least squares in the logarithms of alpha and beta.
struct Equations {
  double aa = 0;
  double bb = 0;
  double ab = 0;
  double a = 0;
  double b = 0;

  double determinant() const { return aa * bb - ab * ab; }
};

Equations equations_of(const Model& model, std::span<const CallTime> calls, const LinkGuess& guess,
                       const LinkCost& link) {
  Equations sums;
  sums.aa = 1 / (guess.alpha_doubt * guess.alpha_doubt);
  sums.bb = 1 / (guess.beta_doubt * guess.beta_doubt);
  sums.a = sums.aa * std::log(guess.link.alpha / link.alpha);
  sums.b = sums.bb * std::log(guess.link.beta / link.beta);
  for (const CallTime& call : calls) {
    const Parts parts = parts_of(model, call, link);
    const double by_alpha = parts.by_alpha / parts.all;
    const double by_beta = parts.by_beta / parts.all;
    const double late = std::log(call.seconds / parts.all);
    sums.aa += call_certainty * by_alpha * by_alpha;
    sums.ab += call_certainty * by_alpha * by_beta;
    sums.bb += call_certainty * by_beta * by_beta;
    sums.a += call_certainty * by_alpha * late;
    sums.b += call_certainty * by_beta * late;
  }
  return sums;
}

// Squares of what the link does not explain, in standard deviations.
double misfit(const Model& model, std::span<const CallTime> calls, const LinkCost& link) {
  double sum = 0;
  for (const CallTime& call : calls) {
    const double late = std::log(call.seconds / parts_of(model, call, link).all);
    sum += call_certainty * late * late;
  }
  return sum;
}

// One step of Gauss and Newton.
LinkCost improved(const Equations& sums, const LinkCost& link) {
  constexpr double furthest = 1;
  const double by = sums.determinant();
  const double more_alpha =
      std::clamp((sums.a * sums.bb - sums.b * sums.ab) / by, -furthest, furthest);
  const double more_beta =
      std::clamp((sums.b * sums.aa - sums.a * sums.ab) / by, -furthest, furthest);
  return link_with(std::clamp(link.alpha * std::exp(more_alpha), 1e-7, 10.0),
                   std::clamp(link.beta * std::exp(more_beta), 1e-12, 1e-5), link.gamma);
}

}  // namespace

LinkFit fit_link(const Model& model, std::span<const CallTime> calls, const LinkGuess& guess) {
  constexpr int steps = 16;
  LinkCost link = guess.link;
  for (int i = 0; i < steps; ++i) link = improved(equations_of(model, calls, guess, link), link);
  const Equations sums = equations_of(model, calls, guess, link);
  const double by = sums.determinant();
  return {link, std::sqrt(sums.bb / by), std::sqrt(sums.aa / by)};
}

std::vector<LinkCost> fitting_links(const Model& model, std::span<const CallTime> calls,
                                    const LinkCost& start) {
  constexpr int points = 22;
  constexpr double fixed = 1e-3;
  constexpr double unknown = 100;
  constexpr double surely = 9;  // three standard deviations
  if (calls.empty()) return {start};
  const double shortest = std::ranges::min(calls, {}, &CallTime::seconds).seconds;
  std::vector<std::pair<double, LinkCost>> fits;
  LinkCost link = start;
  for (int i = points; i >= 0; --i) {
    const LinkCost with_alpha = link_with(shortest * std::exp2(-i / 2.0), link.beta, start.gamma);
    link = fit_link(model, calls, {with_alpha, fixed, unknown}).link;
    fits.emplace_back(misfit(model, calls, link), link);
  }
  const double best = std::ranges::min(fits, {}, &std::pair<double, LinkCost>::first).first;
  std::vector<LinkCost> links;
  for (const auto& [wrong, one] : fits) {
    if (wrong < best + surely) links.push_back(one);
  }
  return links;
}

double least_more(const Model& model, const CallTime& one, const CallTime& other,
                  std::span<const LinkCost> links) {
  double least = std::numeric_limits<double>::max();
  for (const LinkCost& link : links) {
    const auto cost = [&](const CallTime& call) {
      return model.cost(*call.algorithm, call.bytes, call.variant, &link);
    };
    least = std::min(least, std::log(cost(one) / cost(other)));
  }
  return least;
}

bool is_another_link(const LinkCost& one, const LinkCost& other) {
  constexpr double noticeable = 0.4;  // of logarithms
  return std::abs(std::log(one.alpha / other.alpha)) > noticeable ||
         std::abs(std::log(one.beta / other.beta)) > noticeable;
}

}  // namespace pith
