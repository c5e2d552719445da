#include "compress/state_bytes.hpp"
#include "compress/thresholds/threshold_keys.hpp"

namespace pith {

extern const Scheme sidco_scheme;

namespace {

constexpr std::array<std::string_view, 2> law_words = {"exponential", "pareto"};
constexpr std::array sidco_keys{keys::fixed_density, keys::choice<0>("law", law_words),
                                keys::values,        keys::feedback,
                                keys::hierarchy,     keys::bypass,
                                keys::nonfinite};
constexpr std::array sidco_sections{
    StateSection{"stages", save_plain<&SchemeState::stages>, load_plain<&SchemeState::stages>}};

}  // namespace

constinit const Scheme sidco_scheme{
    .name = "sidco",
    .summary = "about k magnitudes, by a threshold from a law that is fitted to them",
    .electors = Electors::each_by_rule,
    .exchange = "sidco",
    .keys = sidco_keys,
    .density = 0.01,
    .sections = sidco_sections};

}  // namespace pith
