#include "model/call_link.hpp"

#include <algorithm>
#include <cmath>

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

LinkCost fit_link(const Model& model, std::span<const CallTime> calls, const LinkGuess& guess) {
  constexpr int steps = 16;
  LinkCost link = guess.link;
  for (int i = 0; i < steps; ++i) link = improved(equations_of(model, calls, guess, link), link);
  return link;
}

LinkDoubt doubt_of(const Model& model, std::span<const CallTime> calls, const LinkGuess& fitted) {
  const Equations sums = equations_of(model, calls, fitted, fitted.link);
  const double by = sums.determinant();
  return {std::sqrt(sums.bb / by), std::sqrt(sums.aa / by)};
}

std::array<LinkCost, 2> possible_links(const Model& model, const CallTime& call,
                                       const LinkCost& before) {
  constexpr double least = 0.01;
  const Parts parts = parts_of(model, call, before);
  const double more = call.seconds - parts.all;
  const auto changed = [&](double value, double its_part) {
    return value * std::max(its_part > 0 ? 1 + more / its_part : 1, least);
  };
  return {link_with(changed(before.alpha, parts.by_alpha), before.beta, before.gamma),
          link_with(before.alpha, changed(before.beta, parts.by_beta), before.gamma)};
}

bool is_another_link(const LinkCost& one, const LinkCost& other) {
  constexpr double noticeable = 0.4;  // of logarithms
  return std::abs(std::log(one.alpha / other.alpha)) > noticeable ||
         std::abs(std::log(one.beta / other.beta)) > noticeable;
}

}  // namespace pith
