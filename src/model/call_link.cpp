#include "model/call_link.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "model/cheapest.hpp"

namespace pith {

namespace {

// Of a call: seconds in all, and by its messages and its bytes.
struct Parts {
  double all = 0;
  double by_alpha = 0;
  double by_beta = 0;
};

constexpr double small = 1e-3;
constexpr double least_beta = 1e-12;
constexpr double most_beta = 1e-5;

double cost_of(const Model& model, const CallTime& call, const LinkCost& link) {
  return model.cost(*call.algorithm, call.bytes, call.variant, &link);
}

// What one of both costs of a link makes of a call that costs `all`, by a small change: the cost is
// linear in both, but for pieces that go at the same time.
double part_by(const LinkCost& more, const Model& model, const CallTime& call, double all) {
  return (cost_of(model, call, more) - all) / small;
}

double part_by_alpha(const Model& model, const CallTime& call, const LinkCost& link, double all) {
  LinkCost more = link;
  more.alpha *= 1 + small;
  if (link.message >= link.alpha / 2) more.message *= 1 + small;  // goes with it
  return part_by(more, model, call, all);
}

double part_by_beta(const Model& model, const CallTime& call, const LinkCost& link, double all) {
  LinkCost more = link;
  more.beta *= 1 + small;
  return part_by(more, model, call, all);
}

Parts parts_of(const Model& model, const CallTime& call, const LinkCost& link) {
  const double all = cost_of(model, call, link);
  return {all, part_by_alpha(model, call, link, all), part_by_beta(model, call, link, all)};
}

constexpr double call_doubt = 0.2;  // how wrong cost functions are, noise included
constexpr double call_certainty = 1 / (call_doubt * call_doubt);
constexpr double surely = 9;  // of misfits: three standard deviations

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
    const double late = std::log(call.seconds / cost_of(model, call, link));
    sum += call_certainty * late * late;
  }
  return sum;
}

// With which all messages of one of the calls take its time, and a half more.
double most_alpha(const Model& model, std::span<const CallTime> calls, const LinkCost& link) {
  double most = std::numeric_limits<double>::max();
  for (const CallTime& call : calls) {
    const double by_alpha = std::max(parts_of(model, call, link).by_alpha, 1e-12);
    most = std::min(most, call.seconds * link.alpha / by_alpha);
  }
  return 1.5 * most;
}

// With this alpha.
double fitting_beta(const Model& model, std::span<const CallTime> calls, LinkCost link) {
  constexpr int steps = 8;
  constexpr double furthest = 2;
  for (int i = 0; i < steps; ++i) {
    double late = 0;
    double by_beta = 1e-9;
    for (const CallTime& call : calls) {
      const double all = cost_of(model, call, link);
      const double share = part_by_beta(model, call, link, all) / all;
      late += share * std::log(call.seconds / all);
      by_beta += share * share;
    }
    const double more = std::clamp(late / by_beta, -furthest, furthest);
    link.beta = std::clamp(link.beta * std::exp(more), least_beta, most_beta);
    if (std::abs(more) < small) break;
  }
  return link.beta;
}

// One step of Gauss and Newton.
LinkCost improved(const Equations& sums, const LinkCost& link, bool near) {
  constexpr double furthest = 1;
  const double by = sums.determinant();
  const double more_alpha =
      std::clamp((sums.a * sums.bb - sums.b * sums.ab) / by, -furthest, furthest);
  const double more_beta =
      std::clamp((sums.b * sums.aa - sums.a * sums.ab) / by, -furthest, furthest);
  return link_with(std::clamp(link.alpha * std::exp(more_alpha), 1e-7, 10.0),
                   std::clamp(link.beta * std::exp(more_beta), least_beta, most_beta), link.gamma,
                   near);
}

}  // namespace

LinkFit fit_link(const Model& model, std::span<const CallTime> calls, const LinkGuess& guess) {
  constexpr int steps = 16;
  LinkCost link = guess.link;
  for (int i = 0; i < steps; ++i) {
    link = improved(equations_of(model, calls, guess, link), link, guess.near);
  }
  const Equations sums = equations_of(model, calls, guess, link);
  const double by = sums.determinant();
  return {link, std::sqrt(sums.bb / by), std::sqrt(sums.aa / by)};
}

std::vector<LinkCost> fitting_links(const Model& model, std::span<const CallTime> calls,
                                    const LinkCost& start) {
  constexpr int halvings = 8;  // until alpha takes no time to speak of
  if (calls.empty()) return {start};
  std::vector<std::pair<double, LinkCost>> fits;
  LinkCost link = start;
  const double most = most_alpha(model, calls, start);
  for (int i = 2 * halvings; i >= 0; --i) {
    link = link_with(most * std::exp2(-i / 2.0), link.beta, start.gamma);
    link.beta = fitting_beta(model, calls, link);
    fits.emplace_back(misfit(model, calls, link), link);
  }
  const double best = std::ranges::min(fits, {}, &std::pair<double, LinkCost>::first).first;
  std::vector<LinkCost> links;
  for (const auto& [wrong, one] : fits) {
    if (wrong < best + surely) links.push_back(one);
  }
  return links;
}

double least_log_cost(const Model& model, const CallTime& call, std::span<const LinkCost> links) {
  double least = std::numeric_limits<double>::max();
  for (const LinkCost& link : links) least = std::min(least, cost_of(model, call, link));
  return std::log(least + mean_timeout(*call.algorithm, model.shape(call.bytes)));
}

bool explains_better(const LinkCost& one, const LinkCost& other, const Model& model,
                     std::span<const CallTime> calls) {
  return misfit(model, calls, one) + surely < misfit(model, calls, other);
}

bool is_another_link(const LinkCost& one, const LinkCost& other) {
  constexpr double noticeable = 0.4;  // of logarithms
  return std::abs(std::log(one.alpha / other.alpha)) > noticeable ||
         std::abs(std::log(one.beta / other.beta)) > noticeable;
}

}  // namespace pith
