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

// What a spec may choose: the candidates of each elected form, a dense call, the coded forms, in
// this order.
class Options {
 public:
  static constexpr std::size_t most =
      (form_count - coded_form_count) * most_candidates + 1 + coded_form_count;

  Options(const Spec& spec, int ranks) : candidates_(candidates_of(spec)) {
    if (!spec.chooses_scheme()) add_candidates(Form::none);
    add_all(spec, is_elected);
    sparse_ = count_;
    if (spec.may_bypass) add({1, Form::none});
    // A rank alone codes for nobody, but if it may do nothing else.
    if (ranks > 1 || count_ == 0) add_all(spec, is_coded);
  }
  std::span<const DensityChoice> all() const { return std::span(options_).first(count_); }
  std::size_t sparse() const { return sparse_; }
  // Of what the spec has at present; size() if it may no longer.
  std::size_t present(const Spec& spec) const {
    const DensityChoice now = present_of(spec);
    const bool is_sparse = spec.chooses_scheme()
                               ? is_elected(spec.form)
                               : spec.form == Form::none && !spec.adapted_to_dense();
    const auto found =
        is_sparse ? std::ranges::find(all().first(sparse_), spec.form, &DensityChoice::form)
                  : std::ranges::find(all().subspan(sparse_), now);
    const auto first = static_cast<std::size_t>(found - all().begin());
    return is_sparse ? first + nearest(spec.density) : first;
  }
  std::size_t size() const { return count_; }
  std::size_t nearest(double density) const { return candidates_.nearest(density); }
  // Of a sparse option.
  std::size_t candidate(std::size_t option) const { return option % candidates_.count; }

 private:
  void add(const DensityChoice& option) { options_[count_++] = option; }
  void add_candidates(Form form) {
    for (std::size_t i = 0; i < candidates_.count; ++i) add({candidates_[i], form});
  }
  void add_all(const Spec& spec, bool (*wanted)(Form)) {
    for (const Form form : all_forms) {
      if (!spec.may_take(form) || !wanted(form)) continue;
      is_coded(form) ? add({1, form}) : add_candidates(form);
    }
  }

  Candidates candidates_;
  std::array<DensityChoice, most> options_{};
  std::size_t count_ = 0;
  std::size_t sparse_ = 0;
};

CallCost cost_of(Spec spec, const DensityChoice& choice, std::size_t count, int ranks) {
  take_form(spec, choice.form, choice.density);
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

constexpr double least_gain = 1e-9;

// Each rank's values are coded, and then their sums.
double lack_of_coded(const Spec& spec, const DensityFacts& facts, Form form) {
  const double lost = facts.losses[number_of(form) - 1];
  const Coding coding = *coding_of(in_form(spec, form));
  if (coding.draws) return 1 + 2 * lost;
  const double kept = std::max(1 - lost, least_gain);
  return coding.keeps_rest ? 1 / kept : 1 / (kept * kept);
}

double lack_of_elected(const Spec& spec, double squares) {
  const bool norms = spec.objective == Objective::ratio && spec.feedback;
  const double kept = std::max(squares, least_gain);
  return 1 / (norms ? std::sqrt(kept) : kept);
}

// Nobody knows what a form misses that was not tried: it has the benefit of the doubt.
double known_share(Form form, const DensityControl& control) {
  if (!is_elected(form) || control.share(form) == 0) return 1;
  return double(control.share(form));
}

Points points_of(const Spec& spec, const Options& options, std::size_t count, int ranks,
                 const LinkCost& link, const DensityFacts& facts, const DensityControl& control) {
  Points points;
  for (std::size_t i = 0; i < options.size(); ++i) {
    const DensityChoice& option = options.all()[i];
    Point& point = points[i];
    point.seconds = cost_of(spec, option, count, ranks).seconds(link.alpha, link.beta);
    if (i < options.sparse()) {
      const double share = known_share(option.form, control);
      point.lack = lack_of_elected(spec, share * facts.gains[options.candidate(i)]);
    } else if (is_coded(option.form)) {
      point.lack = lack_of_coded(spec, facts, option.form);
    }
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
                             const DensityFacts& facts, const DensityControl& control) {
  const Options options(spec, ranks);
  const Points points = points_of(spec, options, count, ranks, link, facts, control);
  return spec.objective == Objective::paper ? choose_by_paper(spec, options, points)
                                            : choose_by_ratio(spec, options, points, facts);
}

void learn_share(const Spec& spec, const DensityFacts& facts, DensityControl& control) {
  constexpr float fading = 0.01F;
  constexpr double least = 1e-3;
  if (!spec.chooses_scheme()) return;
  for (float& share : control.shares) {
    if (share > 0) share += fading * (1 - share);
  }
  // Where each rank sends its own largest elements to all, what they promise is what is sent.
  if (!is_elected(spec.form) || gathers_lists(spec)) return;
  const double promised = facts.gains[candidates_of(spec).nearest(spec.density)];
  if (facts.sent < 0 || !(promised > 0)) return;
  const auto found = static_cast<float>(std::clamp(facts.sent / promised, least, 1.0));
  float& share = control.share(spec.form);
  share = share == 0 ? found : (share + found) / 2;
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

// Among elections, if there are any: what they leave out comes later, while a coding loses what it
// does.
DensityChoice other_bytes(const Spec& spec, std::size_t count, int ranks) {
  constexpr double apart = 1.8;
  const DensityChoice present = present_of(spec);
  const double its = cost_of(spec, present, count, ranks).bytes;
  if (ranks == 1 || count == 0) return present;
  const Options options(spec, ranks);
  const std::span sparse = options.all().first(options.sparse());
  const Form elected = is_elected(spec.form) || sparse.empty() ? spec.form : sparse[0].form;
  DensityChoice less = present;
  DensityChoice more = present;
  double less_bytes = 0;
  double more_bytes = growth * its;
  for (const DensityChoice& one : sparse.empty() ? options.all() : sparse) {
    if (!sparse.empty() && one.form != elected) continue;
    const double bytes = cost_of(spec, one, count, ranks).bytes;
    if (apart * bytes <= its && bytes > less_bytes) {
      less = one;
      less_bytes = bytes;
    } else if (bytes >= apart * its && bytes <= more_bytes) {
      more = one;
      more_bytes = bytes;
    }
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
