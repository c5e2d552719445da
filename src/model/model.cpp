#include "model/model.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>
#include <vector>

#include "model/bypass.hpp"
#include "model/bypass_choice.hpp"
#include "model/call_time.hpp"
#include "model/cheapest.hpp"
#include "model/density_choice.hpp"
#include "model/nominal.hpp"
#include "model/rules.hpp"

namespace pith {

namespace {

bool has_near_sockets(const Shape& shape) {
  return !shape.views && !shape.multi_host() && shape.ranks_a_host > 1;
}

// In shared memory a chunk should stay in the cache until the peer reads it. Between hosts the
// streams of a pair share a chunk. On sockets of one host all that is on the way should stay in the
// cache (loopback, 2 ranks, Zen 3: chunks of 256 KiB and 512 KiB equal within the noise, 128
// KiB 1.1 to 1.8 times their time; two lanes 0.64 to 0.99 of the time of four from 1 to 16 MiB).
std::size_t chunk_on(const Shape& shape) {
  if (shape.views) return std::size_t{64} << 10;
  return std::size_t{has_near_sockets(shape) ? 256u : 512u} << 10;
}

// `chunk` and `lanes` are as set, 0 if not. Nothing about links goes into what is `pinned`.
void choose_pieces(Tuning& tuning, const Shape& shape, bool pinned, std::size_t chunk, int lanes) {
  constexpr std::size_t pinned_chunk = std::size_t{256} << 10;
  const std::size_t best = pinned ? pinned_chunk : chunk_on(shape);
  tuning.chunk_bytes = chunk != 0 ? chunk : best;
  tuning.lanes = lanes != 0 ? lanes : has_near_sockets(shape) ? 2 : Tuning().lanes;
}

}  // namespace

LinkCost link_with(double alpha, double beta, double gamma, bool near) {
  return {alpha, beta, gamma, near ? alpha / 2 : std::min(nominal::wire.message, alpha / 2)};
}

Model::Model(const Settings& settings, int ranks)
    : ranks_(ranks),
      pinned_(settings.deterministic),
      learns_(settings.learn && !pinned_ && ranks > 1),
      explains_(settings.explain.changes),
      chunk_(settings.chunk),
      lanes_(settings.lanes),
      link_(nominal::wire) {
  if (lanes_ != 0) tuning_.lanes = lanes_;
  tuning_.start_bytes = link_.alpha / link_.beta;
}

Error Model::force(const std::string& text) {
  const Expected<ForcedAlgorithms> forced = read_forced_algorithms(text, ranks_);
  if (!forced) return forced.error();
  forced_ = *forced;
  return {};
}

void Model::set_views(bool views) {
  views_ = views && !pinned_;
  link_ = views_ ? nominal::memory : nominal::wire;
  tuning_.start_bytes = nominal::wire.alpha / nominal::wire.beta;
  choose_pieces(tuning_, shape(0), pinned_, chunk_, lanes_);
  cheapest_.forget();
}

void Model::set_hosts(int hosts, int ranks_a_host, bool share) {
  const bool had_near_sockets = has_near_sockets(shape(0));
  hosts_ = pinned_ ? 1 : hosts;
  ranks_a_host_ = pinned_ ? 1 : ranks_a_host;
  hosts_share_ = share;
  if (has_near_sockets(shape(0)) != had_near_sockets) {
    choose_pieces(tuning_, shape(0), pinned_, chunk_, lanes_);
  }
  cheapest_.forget();
}

// To a power of two, so that most runs choose alike. One far link makes all calls far.
void Model::set_round_trip(double seconds) {
  constexpr double far_from_it = 5;
  near_ = seconds > 0 && seconds / 2 < far_from_it * nominal::wire.alpha;
  if (near_ || seconds <= 0) return;
  const double alpha = std::exp2(std::round(std::log2(seconds / 2)));
  const bool is_distant = alpha >= nominal::distant_alpha;
  set_link(alpha, is_distant ? nominal::distant_beta : nominal::wire.beta);
}

// A far link holds what is on its way: the lanes' chunks should fill it. Scratch bounds them.
void Model::set_link(double alpha, double beta) {
  constexpr std::size_t most = std::size_t{2} << 20;
  if (pinned_ || views_) return;
  link_ = link_with(alpha, beta, link_.gamma, near_);
  tuning_.start_bytes = alpha / beta;
  const double least = static_cast<double>(chunk_on(shape(0)));
  const double filling = std::clamp<double>(tuning_.start_bytes / tuning_.lanes, least, most);
  if (chunk_ == 0) tuning_.chunk_bytes = std::bit_ceil(static_cast<std::size_t>(filling));
  cheapest_.forget();
}

void Model::set_known(const KnownLinks& known) {
  known_ = known;
  if (pinned_) return;
  if (known.gamma > 0) link_.gamma = known.gamma;
  if (views_) {
    if (!known.views.known()) return;
    const double message = std::min(nominal::memory.message, known.views.alpha / 2);
    link_ = {known.views.alpha, known.views.beta, link_.gamma, message};
    return;
  }
  const KnownLink& link = known.between(hosts_ > 1);
  const double least = link_.alpha > nominal::wire.alpha ? link_.alpha : 0;  // by the round trip
  if (link.known()) return set_link(std::max(link.alpha, least), link.beta);
  cheapest_.forget();
}

Shape Model::shape(std::size_t bytes) const {
  return {ranks_, bytes,    tuning_,       views_,      oversubscribed_,
          hosts_, devices_, ranks_a_host_, hosts_share_};
}

// The costs know nothing of views and kernels: there the rules alone decide.
const Algorithm& Model::algorithm(Collective collective, std::size_t bytes) const {
  if (const Algorithm* forced = forced_[static_cast<std::size_t>(collective)]) return *forced;
  if (views_) return default_algorithm(shape(bytes), collective);
  const SizeClass size(bytes);
  if (const Algorithm* found = cheapest_.at(collective, size)) return *found;
  const Algorithm& found = cheapest_algorithm(shape(size.largest()), collective, link_);
  cheapest_.set(collective, size, found);
  return found;
}

double Model::cost(const Algorithm& algorithm, std::size_t bytes, Variant variant,
                   const LinkCost* link) const {
  Shape shape = this->shape(bytes);
  shape.tuning = varied(shape.tuning, variant);
  return cost_on(link ? *link : link_, algorithm, shape);
}

Choices choices_on(const LinkCost& link, const Model& model) {
  Choices choices;
  for (std::size_t i = 0; i < collective_count; ++i) {
    const auto collective = static_cast<Collective>(i);
    for (std::size_t at = 0; at < SizeClass::count; ++at) {
      const SizeClass size = SizeClass::of_index(at);
      choices.at(collective, size) = model.cell_on(link, collective, size);
    }
  }
  return choices;
}

Choices Model::start() const { return choices_on(link_, *this); }

// The rivals are those of least cost: there may be more than fit.
//
// Private memory goes through slots at the speed at which the cores exchange cache lines, which
// differs by a factor of eight, on virtual machines from minute to minute, or past the caches. The
// kernel's copies hardly depend on it. Variant::copies leaves it to the transport, call by call,
// whether it copies (Transport::prefers_messages).
Choices::Cell Model::cell_on(const LinkCost& link, Collective collective, SizeClass size) const {
  constexpr std::size_t largest_tried = std::size_t{256} << 20;  // scratch of some is P vectors
  constexpr std::size_t short_bytes = std::size_t{64} << 10;
  constexpr std::size_t least_copied = std::size_t{16} << 10;
  constexpr std::size_t usually_copied = std::size_t{256} << 10;
  Choices::Cell cell;
  if (!learns() || is_forced(collective)) return cell;
  const std::size_t bytes = size.largest();
  const Algorithm& own = algorithm(collective, bytes);
  const Algorithm& best = views_ ? own : cheapest_algorithm(shape(bytes), collective, link);
  const bool copies = views_ && best.can_copy && bytes >= usually_copied;
  const bool is_even = &own == &algorithm(collective, bytes / 2 + 1);  // one rule for all its sizes
  const Choices::Plan chosen = Choices::plan_of(best, copies ? Variant::copies : Variant::usual);
  if (copies || !is_even || &best != &own) cell.chosen = chosen;
  if (bytes > largest_tried || whose_time(collective, link_) == WhoseTime::nobodys) return cell;
  std::vector<std::pair<double, Choices::Plan>> found;
  for (const Algorithm& one : algorithms()) {
    if (one.collective != collective || !serves(one, shape(bytes))) continue;
    const double cost = mean_cost_on(link, one, shape(bytes));
    found.emplace_back(cost, Choices::plan_of(one));
    const bool may_copy = views_ && one.can_copy && bytes >= least_copied;
    if (may_copy) found.emplace_back(cost, Choices::plan_of(one, Variant::copies));
  }
  std::ranges::sort(found);
  for (const auto& [cost, plan] : found) {
    if (cost > (bytes <= short_bytes ? 3 : 2) * found.front().first) break;
    if (plan != chosen) cell.add_rival(plan);
  }
  return cell;
}

bool Model::is_faster_dense(const Spec& spec, std::size_t count, const Hosts* hosts) const {
  return hosts ? is_faster_dense_by_host(spec, count, *hosts, link_)
               : pith::is_faster_dense(spec, count, ranks_, link_);
}

double Model::predicted_seconds(const Spec& spec, std::size_t count, bool dense, const Hosts* hosts,
                                const LinkSums& earlier) const {
  if (ranks_ == 1 || count == 0) return 0;
  if (hosts) {
    return dense ? dense_seconds_by_host(count, *hosts, link_)
                 : compressed_seconds_by_host(spec, count, *hosts, link_);
  }
  const LinkCost link = fitted_link(earlier, link_);
  return way_cost(spec, dense, count, ranks_).seconds(link.alpha, link.beta);
}

void Model::adapt_density(const Spec& spec, std::size_t count, const DensityFacts& facts,
                          DensityControl& control) const {
  DensityFacts known = facts;
  known.first = control.density == 0 || control.probes;
  if (pinned_) known.between_s = known.last_s = 0;
  if (known.last_s > 0 && control.count > 0) {
    const CallCost last = way_cost(spec, spec.adapted_to_dense(), control.count, ranks_);
    if (add_call(control.link, link_, last, known.last_s)) control.moved = true;
  }
  const LinkCost link = fitted_link(control.link, link_);
  learn_share(spec, known, control);
  const DensityChoice best = choose_density(spec, count, ranks_, link, known, control);
  const bool is_free = pinned_ || control.count == 0;
  DensityChoice next = is_free ? best : cautious_choice(spec, best, count, ranks_);
  const bool stays = next == present_of(spec);
  control.probes = stays && known.last_s > 0 && is_probe_due(spec, control, facts.step);
  if (control.probes) next = other_bytes(spec, count, ranks_);
  control.probes = control.probes && next != present_of(spec);  // or there is nothing else
  if (control.probes || !stays) {
    control.probed = facts.step;
    control.moved = false;
  }
  control.density = next.density;
  control.form = next.form;
  const bool looks_again = pinned_ ? facts.step < 4 : known.last_s == 0;
  const bool changes = next != present_of(spec);
  control.next = facts.step +
                 (looks_again || changes ? 1 : density_interval(spec, count, ranks_, link, known));
}

BypassControl Model::start_bypass(const Spec& spec, std::size_t count, std::uint64_t step) const {
  const bool dense = pith::is_faster_dense(spec, count, ranks_, link_);
  const bool open = !pinned_ && ranks_ > 1 && count > 0;
  return start_ways(ways_of(spec, count, ranks_, link_), {count, step, dense, open});
}

void Model::adapt_bypass(const Spec& spec, const BypassFacts& facts, BypassControl& control) const {
  if (facts.on_device) {
    control.dense = pith::is_faster_dense(spec, control.count, ranks_, link_);
    control.next = BypassControl::never;
    return;
  }
  choose_way(control, ways_of(spec, control.count, ranks_, link_), facts);
}

}  // namespace pith
