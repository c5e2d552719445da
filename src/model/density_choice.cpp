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

namespace {

// Another choice than the present one must be better by so much.
constexpr double worthwhile = 0.95;
constexpr double never = std::numeric_limits<double>::infinity();

// What a density costs, and what it misses.
struct Point {
  double seconds = 0;  // of the call
  double lack = 1;     // 1 / gain
};

struct Points {
  std::array<Point, most_candidates> points{};
  std::size_t count = 0;
  Point dense{never};

  std::span<const Point> all() const { return std::span(points).first(count); }
};
// The least wins.
using Prices = std::array<double, most_candidates + 1>;

Points points_of(const Spec& spec, const Candidates& candidates, std::size_t count, int ranks,
                 const LinkCost& link, const DensityFacts& facts) {
  constexpr double least_gain = 1e-9;
  Points found;
  found.count = candidates.count;
  for (std::size_t i = 0; i < candidates.count; ++i) {
    const CallCost cost = compressed_cost(spec, candidates[i], count, ranks);
    found.points[i] = {cost.seconds(link.alpha, link.beta),
                       1 / std::max(facts.gains[i], least_gain)};
  }
  if (spec.may_bypass) found.dense = {dense_cost(count, ranks).seconds(link.alpha, link.beta)};
  return found;
}

std::size_t least_of(std::span<const double> prices) {
  return static_cast<std::size_t>(std::ranges::min_element(prices) - prices.begin());
}
bool is_worth_it(double price, double present) { return price <= worthwhile * present; }

// With equal weights the price is time / gain.
double choose_by_ratio(const Spec& spec, const Candidates& candidates, const Points& points,
                       double between_s) {
  const double weight = spec.time_weight;
  const auto price = [&](const Point& point) {
    return std::pow(between_s + point.seconds, 2 * weight) * std::pow(point.lack, 2 - 2 * weight);
  };
  Prices prices;
  std::ranges::transform(points.all(), prices.begin(), price);
  const std::size_t dense = points.count;
  prices[dense] = price(points.dense);
  const std::size_t now = spec.adapted_to_dense() ? dense : candidates.nearest(spec.density);
  const std::size_t best = least_of(std::span(prices).first(dense + 1));
  if (best == now || !is_worth_it(prices[best], prices[now])) return spec.density;
  return best == dense ? 1 : candidates[best];
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
double choose_by_paper(const Spec& spec, const Candidates& candidates, const Points& points) {
  Range seconds;
  Range lack;
  for (const Point& point : points.all()) {
    if (!is_on_front(point, points.all())) continue;
    seconds.add(point.seconds);
    lack.add(point.lack);
  }
  const auto price = [&](const Point& point) {
    if (!is_on_front(point, points.all())) return never;
    return std::max(spec.time_weight * seconds.share(point.seconds),
                    (1 - spec.time_weight) * lack.share(point.lack));
  };
  Prices prices;
  std::ranges::transform(points.all(), prices.begin(), price);
  const bool was_dense = spec.adapted_to_dense();
  const std::size_t now = candidates.nearest(spec.density);
  const std::size_t best = least_of(std::span(prices).first(points.count));
  const bool stays = !was_dense && (best == now || !is_worth_it(prices[best], prices[now]));
  const double sparse_s = points.points[stays ? now : best].seconds;
  if (points.dense.seconds < (was_dense ? 1 / worthwhile : worthwhile) * sparse_s) return 1;
  return stays ? spec.density : candidates[best];
}

}  // namespace

double choose_density(const Spec& spec, std::size_t count, int ranks, const LinkCost& link,
                      const DensityFacts& facts) {
  const Candidates candidates = candidates_of(spec);
  const Points points = points_of(spec, candidates, count, ranks, link, facts);
  return spec.objective == Objective::paper
             ? choose_by_paper(spec, candidates, points)
             : choose_by_ratio(spec, candidates, points, facts.between_s);
}

double cautious_density(const Spec& spec, double best) {
  constexpr double growth = 4;
  const double present = spec.density;
  const Candidates candidates = candidates_of(spec);
  const double most = candidates[candidates.count - 1];
  // A dense call has some three times the bytes of one with the largest density.
  if (best <= growth * present || present >= most) return best;
  const std::size_t next = std::min(candidates.nearest(present) + 1, candidates.count - 1);
  return candidates[std::max(next, candidates.nearest(std::min(growth * present, most)))];
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
