#include "compress/gossip/choco_scheme.hpp"

#include <cmath>

#include "compress/scheme_keys.hpp"
#include "compress/state_bytes.hpp"
#include "compress/threshold_forecast.hpp"

namespace pith {

extern const Scheme choco_scheme;

namespace {

constexpr std::array<std::string_view, 4> graph_words = {"ring", "torus", "complete", "stated"};
// Always a number: no time tells how fast ranks agree.
constexpr Key density_key{
    .name = "density",
    .get = [](const Spec& spec) { return std::bit_cast<std::uint64_t>(spec.density); },
    .set = [](Spec& spec, std::uint64_t bits) { spec.density = std::bit_cast<double>(bits); },
    .kind = Key::Kind::real,
    .most = 1,
    .expected = "more than 0 and at most 1"};
constexpr std::array choco_keys{density_key, keys::choice<0>("graph", graph_words),
                                keys::number<0>("gamma", 0, 1, "more than 0 and at most 1"),
                                keys::values};

void save_memories(const SchemeState& state, StateWriter& out) {
  if (state.gossip.own.empty()) return;
  out.array(state.gossip.own);
  out.array(state.gossip.neighbours);
  out.value(state.gossip.edges);
}

bool load_memories(SchemeState& state, const StateShape& shape, StateReader& in) {
  if (in.ended()) return true;
  GossipMemories known;
  if (!in.array(known.own) || !in.array(known.neighbours)) return false;
  known.edges = in.value<std::uint64_t>();
  const auto is_valid = [&](const std::vector<float>& values) {
    return values.size() == shape.count &&
           std::ranges::all_of(values, [](float x) { return std::isfinite(x); });
  };
  if (!is_valid(known.own) || !is_valid(known.neighbours)) return false;
  state.gossip = std::move(known);
  return true;
}

constexpr std::array choco_sections{forecast_section,
                                    StateSection{"gossip", save_memories, load_memories}};

}  // namespace

// [Koloskova, Stich, Jaggi, "Decentralized Stochastic Optimization and Gossip Algorithms with
// Compressed Communication", ICML 2019].
constinit const Scheme choco_scheme{
    .name = "choco",
    .summary = "parameters, which neighbours in a graph bring nearer to each other",
    .electors = Electors::each_rank,
    .exchange = "choco",
    .keys = choco_keys,
    .density = 0.01,
    .numbers = {0.01},
    .averages_parameters = true,
    .sections = choco_sections};

}  // namespace pith
