#include "compress/thresholds/threshold_keys.hpp"

namespace pith {

extern const Scheme wangni_scheme;

namespace {

constexpr std::array wangni_keys{keys::fixed_density, keys::values,    keys::hierarchy,
                                 keys::bypass,        keys::nonfinite, keys::seed};

}  // namespace

constinit const Scheme wangni_scheme{
    .name = "wangni",
    .summary = "about k elements drawn by their magnitudes, without bias",
    .electors = Electors::each_by_rule,
    .exchange = "wangni",
    .keys = wangni_keys,
    .density = 0.01,
    .feedback = false};

}  // namespace pith
