#include "compress/low_rank/factor_keys.hpp"

namespace pith {

extern const Scheme atomo_scheme;

namespace {

constexpr std::array atomo_keys{keys::factor_rank, keys::seed};
constexpr std::array atomo_sections{factors_section};

}  // namespace

// [Wang et al., "ATOMO: Communication-efficient Learning via Atomic Sparsification", NeurIPS 2018].
constinit const Scheme atomo_scheme{
    .name = "atomo",
    .summary = "some singular values of every matrix with their vectors, drawn without bias",
    .exchange = "atomo",
    .keys = atomo_keys,
    .choices = {3},
    .feedback = false,
    .rank = stated_rank,
    .sections = atomo_sections};

}  // namespace pith
