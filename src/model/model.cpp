#include "model/model.hpp"

#include <algorithm>

#include "model/bypass.hpp"
#include "model/nominal.hpp"
#include "model/rules.hpp"

namespace pith {

Model::Model(const Settings& settings, int ranks)
    : ranks_(ranks),
      pinned_(settings.deterministic),
      learns_(settings.learn && !pinned_ && ranks > 1),
      explains_(settings.explain),
      chunk_(settings.chunk) {
  tuning_.lanes = settings.lanes;
  tuning_.start_bytes = nominal::wire.alpha / nominal::wire.beta;
}

Error Model::force(const std::string& text) {
  const Expected<ForcedAlgorithms> forced = read_forced_algorithms(text, ranks_);
  if (!forced) return forced.error();
  forced_ = *forced;
  return {};
}

// In shared memory a chunk should stay in the cache until the peer reads it. On sockets the streams
// of a pair share a chunk: 512 KiB are as fast as 1 MiB between 2 and 4 ranks of a host (within a
// noise of 10 %), and a third faster than 256 KiB for 4 MiB; scratch of 3 ranks is 7 MiB each, not
// 19.
void Model::set_views(bool views) {
  constexpr std::size_t view_chunk = std::size_t{64} << 10;
  constexpr std::size_t wire_chunk = std::size_t{512} << 10;
  constexpr std::size_t pinned_chunk = std::size_t{256} << 10;
  views_ = views && !pinned_;
  const std::size_t best = views ? view_chunk : wire_chunk;
  const std::size_t chunk = pinned_ ? pinned_chunk : best;
  tuning_.chunk_bytes = chunk_ != 0 ? chunk_ : chunk;
}

Shape Model::shape(std::size_t bytes) const {
  return {ranks_, bytes, tuning_, views_, oversubscribed_, multi_host_, devices_};
}

const Algorithm& Model::algorithm(Collective collective, std::size_t bytes) const {
  if (const Algorithm* forced = forced_[static_cast<std::size_t>(collective)]) return *forced;
  return default_algorithm(shape(bytes), collective);
}

const Algorithm* Model::algorithm(std::string_view collective, std::size_t bytes) const {
  const auto of_it = [&](const Algorithm& one) { return name_of(one.collective) == collective; };
  const auto found = std::ranges::find_if(algorithms(), of_it);
  return found == algorithms().end() ? nullptr : &algorithm(found->collective, bytes);
}

double Model::nominal_cost(const Algorithm& algorithm, std::size_t bytes) const {
  return algorithm.cost(shape(bytes), views_ ? nominal::memory : nominal::wire);
}

Choices Model::start() const {
  Choices choices;
  if (!learns()) return choices;
  for (std::size_t i = 0; i < collective_count; ++i) {
    if (forced_[i]) continue;
    for (std::size_t size = 0; size < SizeClass::count; ++size) {
      add_rivals(choices, static_cast<Collective>(i), SizeClass::of_index(size));
    }
  }
  return choices;
}

void Model::add_rivals(Choices& choices, Collective collective, SizeClass size) const {
  constexpr std::size_t largest_tried = std::size_t{256} << 20;  // scratch of some is P vectors
  constexpr std::size_t short_bytes = std::size_t{64} << 10;
  if (size.largest() > largest_tried) return;
  const double factor = size.largest() <= short_bytes ? 3 : 2;
  const Algorithm& chosen = algorithm(collective, size.largest());
  const auto can_serve = [&](const Algorithm& one) {
    return one.collective == collective && ranks_ <= one.ranks_max;
  };
  double least = nominal_cost(chosen, size.largest());
  for (const Algorithm& one : algorithms()) {
    if (can_serve(one)) least = std::min(least, nominal_cost(one, size.largest()));
  }
  for (const Algorithm& one : algorithms()) {
    if (!can_serve(one) || &one == &chosen) continue;
    if (nominal_cost(one, size.largest()) > factor * least) continue;
    choices.at(collective, size).add_rival(Choices::place_of(one));
  }
}

bool Model::is_faster_dense(const Spec& spec, std::size_t count, const Hosts* hosts) const {
  return hosts ? is_faster_dense_by_host(spec, count, *hosts)
               : pith::is_faster_dense(spec, count, ranks_, views_);
}

}  // namespace pith
