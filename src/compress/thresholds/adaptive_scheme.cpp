// [Dryden et al., "Communication quantization for data-parallel training of deep neural networks",
// MLHPC 2016]
#include "compress/thresholds/threshold_keys.hpp"

namespace pith {

extern const Scheme adaptive_scheme;

namespace {

constexpr std::array adaptive_keys{keys::fixed_density, keys::values, keys::feedback,
                                   keys::hierarchy,     keys::bypass, keys::nonfinite};

}  // namespace

constinit const Scheme adaptive_scheme{
    .name = "adaptive",
    .summary = "the k/2 largest and the k/2 least elements, each as the mean of theirs",
    .electors = Electors::each_by_rule,
    .exchange = "adaptive",
    .keys = adaptive_keys,
    .density = 0.01};

}  // namespace pith
