#include "model/density_choice.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>

#include "compress/scheme.hpp"

namespace pith {

namespace {

LinkSums scaled(const LinkSums& sums, double factor) {
  return {factor * sums.messages_messages, factor * sums.messages_bytes, factor * sums.bytes_bytes,
          factor * sums.messages_seconds, factor * sums.bytes_seconds};
}

LinkSums with_call(LinkSums sums, const CallCost& cost, double seconds) {
  const double messages = cost.messages / seconds;
  const double bytes = cost.bytes / seconds;
  const double on_link = 1 - cost.work_s / seconds;
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
bool add_call(LinkSums& link, const LinkCost& nominal, CallCost cost, double seconds) {
  constexpr double remembered = 0.8;
  constexpr double hardly = 1e-6;
  constexpr double tolerance = 1.5;
  constexpr double most_work = 0.95;  // the cores may be faster than assumed
  if (!(seconds > 0)) return false;
  cost.work_s = std::min(cost.work_s, most_work * seconds);
  const LinkSums all = with_call(scaled(link, remembered), cost, seconds);
  const LinkCost found = fitted_link(all, nominal);
  const double ratio = seconds / cost.seconds(found.alpha, found.beta);
  const bool changed = ratio > tolerance || ratio < 1 / tolerance;
  link = changed ? with_call(scaled(link, hardly), cost, seconds) : all;
  return changed;
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

namespace {

// Another choice than the present one must be better by so much.
constexpr double worthwhile = 0.95;
constexpr double never = std::numeric_limits<double>::infinity();
// By so much the bytes of a call may grow at once.
constexpr double growth = 4;

// What a spec may choose: the candidates, a dense call, the forms, in this order.
class Options {
 public:
  static constexpr std::size_t most = most_candidates + 1 + all_forms.size();

  Options(const Spec& spec, int ranks) : candidates_(candidates_of(spec)) {
    for (std::size_t i = 0; i < candidates_.count; ++i) add({candidates_[i], Form::none});
    if (spec.may_bypass) add({1, Form::none});
    for (const Form form : all_forms) {
      if (spec.may_take(form) && ranks > 1) add({1, form});
    }
  }
  std::span<const DensityChoice> all() const { return std::span(options_).first(count_); }
  std::size_t sparse() const { return candidates_.count; }
  // Of what the spec has at present; size() if it may no longer.
  std::size_t present(const Spec& spec) const {
    if (spec.form == Form::none && !spec.adapted_to_dense()) return nearest(spec.density);
    const auto found = std::ranges::find(all().subspan(sparse()), present_of(spec));
    return static_cast<std::size_t>(found - all().begin());
  }
  std::size_t size() const { return count_; }
  std::size_t nearest(double density) const { return candidates_.nearest(density); }

 private:
  void add(const DensityChoice& option) { options_[count_++] = option; }

  Candidates candidates_;
  std::array<DensityChoice, most> options_{};
  std::size_t count_ = 0;
};

CallCost cost_of(Spec spec, const DensityChoice& choice, std::size_t count, int ranks) {
  spec.density = choice.density;
  spec.form = choice.form;
  return way_cost(spec, spec.adapted_to_dense(), count, ranks);
}

// What an option costs, and what it misses.
struct Point {
  double seconds = 0;  // of the call
  double lack = 1;     // 1 / gain
};
using Points = std::array<Point, Options::most>;
// The least wins.
using Prices = std::array<double, Options::most>;

double lack_of(const Spec& spec, const DensityFacts& facts, std::size_t option,
               const DensityChoice& choice) {
  constexpr double least_gain = 1e-9;
  if (choice.form != Form::none) {
    return 1 + 2 * facts.losses[static_cast<std::size_t>(choice.form) - 1];
  }
  if (choice.density >= 1) return 1;
  const double squares = std::max(facts.gains[option], least_gain);
  const bool norms = spec.objective == Objective::ratio && spec.feedback;
  return 1 / (norms ? std::sqrt(squares) : squares);
}

Points points_of(const Spec& spec, const Options& options, std::size_t count, int ranks,
                 const LinkCost& link, const DensityFacts& facts) {
  Points points;
  for (std::size_t i = 0; i < options.size(); ++i) {
    const DensityChoice& option = options.all()[i];
    const CallCost cost = cost_of(spec, option, count, ranks);
    points[i] = {cost.seconds(link.alpha, link.beta), lack_of(spec, facts, i, option)};
  }
  return points;
}

std::size_t least_of(std::span<const double> prices) {
  return static_cast<std::size_t>(std::ranges::min_element(prices) - prices.begin());
}
bool is_worth_it(double price, double present) { return price <= worthwhile * present; }

// With equal weights the price is time / gain. What a vector begins with has no advantage.
DensityChoice choose_by_ratio(const Spec& spec, const Options& options, const Points& points,
                              const DensityFacts& facts) {
  const double weight = spec.time_weight;
  Prices prices;
  std::ranges::transform(points, prices.begin(), [&](const Point& point) {
    return std::pow(facts.between_s + point.seconds, 2 * weight) *
           std::pow(point.lack, 2 - 2 * weight);
  });
  const std::size_t now = options.present(spec);
  const std::size_t best = least_of(std::span(prices).first(options.size()));
  const bool is_settled = !facts.first && now < options.size();
  const bool stays = is_settled && (best == now || !is_worth_it(prices[best], prices[now]));
  return stays ? present_of(spec) : options.all()[best];
}

// Whether no other point is better in one respect, and in none worse.
bool is_on_front(const Point& point, std::span<const Point> all) {
  return std::ranges::none_of(all, [&](const Point& other) {
    return other.seconds <= point.seconds && other.lack <= point.lack &&
           (other.seconds < point.seconds || other.lack < point.lack);
  });
}

struct Range {
  double least = never;
  double most = 0;

  void add(double value) {
    least = std::min(least, value);
    most = std::max(most, value);
  }
  double share(double value) const { return most > least ? (value - least) / (most - least) : 0; }
};

// A dense call needs no compromise where it is faster, too.
DensityChoice choose_by_paper(const Spec& spec, const Options& options, const Points& points) {
  const std::span sparse = std::span(points).first(options.sparse());
  Range seconds;
  Range lack;
  for (const Point& point : sparse) {
    if (!is_on_front(point, sparse)) continue;
    seconds.add(point.seconds);
    lack.add(point.lack);
  }
  const auto price = [&](const Point& point) {
    if (!is_on_front(point, sparse)) return never;
    return std::max(spec.time_weight * seconds.share(point.seconds),
                    (1 - spec.time_weight) * lack.share(point.lack));
  };
  Prices prices;
  std::ranges::transform(sparse, prices.begin(), price);
  const bool was_dense = spec.adapted_to_dense();
  const std::size_t now = options.nearest(spec.density);
  const std::size_t best = least_of(std::span(prices).first(sparse.size()));
  const bool stays = !was_dense && (best == now || !is_worth_it(prices[best], prices[now]));
  const double sparse_s = sparse[stays ? now : best].seconds;
  const double margin = was_dense ? 1 / worthwhile : worthwhile;
  if (spec.may_bypass && points[sparse.size()].seconds < margin * sparse_s) {
    return options.all()[sparse.size()];
  }
  return stays ? present_of(spec) : options.all()[best];
}

}  // namespace

DensityChoice choose_density(const Spec& spec, std::size_t count, int ranks, const LinkCost& link,
                             const DensityFacts& facts) {
  const Options options(spec, ranks);
  const Points points = points_of(spec, options, count, ranks, link, facts);
  return spec.objective == Objective::paper ? choose_by_paper(spec, options, points)
                                            : choose_by_ratio(spec, options, points, facts);
}

DensityChoice cautious_choice(const Spec& spec, DensityChoice best, std::size_t count, int ranks) {
  const auto bytes = [&](const DensityChoice& choice) {
    return cost_of(spec, choice, count, ranks).bytes;
  };
  const double most = bytes(best);
  const double present = bytes(present_of(spec));
  const double reach = growth * present;
  if (most <= reach) return best;
  // As many bytes as are in reach, or the least more than now.
  const Options options(spec, ranks);
  DensityChoice next = best;
  for (const DensityChoice& one : options.all()) {
    const double its = bytes(one);
    if (its <= present || its >= most) continue;
    const bool is_better =
        its <= reach ? its > bytes(next) || bytes(next) > reach : its < bytes(next);
    if (is_better) next = one;
  }
  return next;
}

bool is_probe_due(const Spec& spec, const DensityControl& control, std::uint64_t step) {
  const std::uint64_t rest = control.moved ? 16 : 64;
  const bool is_over = control.probed == 0 || step >= control.probed + rest;
  return spec.objective == Objective::ratio && is_over;
}

// Candidates have ever more bytes. What they leave out comes later, while a form loses what it
// does.
DensityChoice other_bytes(const Spec& spec, std::size_t count, int ranks) {
  constexpr double apart = 1.8;
  const DensityChoice present = present_of(spec);
  const double its = cost_of(spec, present, count, ranks).bytes;
  if (ranks == 1 || count == 0) return present;
  const Candidates candidates = candidates_of(spec);
  DensityChoice less = present;
  DensityChoice more = present;
  for (std::size_t i = 0; i < candidates.count; ++i) {
    const DensityChoice one{candidates[i], Form::none};
    const double bytes = cost_of(spec, one, count, ranks).bytes;
    if (apart * bytes <= its) less = one;
    const bool is_in_reach = bytes >= apart * its && bytes <= growth * its;
    if (is_in_reach && more == present) more = one;
  }
  return less == present ? more : less;
}

// One to time a call that all begin together, and one to draw the conclusion.
std::uint64_t density_interval(const Spec& spec, std::size_t count, int ranks, const LinkCost& link,
                               const DensityFacts& facts) {
  constexpr double share = 0.04;
  constexpr double agreements = 2;
  constexpr double least = 4;
  constexpr double most = 12;
  const double agreeing = agreements * std::ceil(std::log2(double(ranks))) * link.alpha;
  const CallCost call = way_cost(spec, spec.adapted_to_dense(), count, ranks);
  const double seconds = facts.between_s + call.seconds(link.alpha, link.beta);
  if (!(seconds > 0)) return static_cast<std::uint64_t>(least);
  const double calls = std::ceil(agreeing / (share * seconds));
  return static_cast<std::uint64_t>(std::clamp(calls, least, most));
}

}  // namespace pith
