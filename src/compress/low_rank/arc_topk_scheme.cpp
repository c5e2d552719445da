#include "compress/low_rank/factor_keys.hpp"

namespace pith {

extern const Scheme arc_topk_scheme;

namespace {

constexpr Key sketch_key = keys::rank_named("sketch", 32, "1 to 32");
// No hierarchy: slices of a vector would cut rows.
constexpr std::array arc_topk_keys{keys::density,   keys::objective, keys::weight,   keys::quantise,
                                   sketch_key,      keys::values,    keys::feedback, keys::bypass,
                                   keys::nonfinite, keys::seed};

constexpr std::array arc_topk_sections{factors_section};

}  // namespace

// [Chen et al., "An All-Reduce Compatible Top-K Compressor for Communication-Efficient Distributed
// Learning", arXiv 2510.26709].
constinit const Scheme arc_topk_scheme{
    .name = "arc-topk",
    .summary = "rows of matrices, by a sketch of them that all ranks sum, without indices",
    .electors = Electors::all_alike,
    .exchange = "arc-topk",
    .keys = arc_topk_keys,
    .density = 0.01,
    .choices = {4},
    .rank = stated_rank,
    .sections = arc_topk_sections};

}  // namespace pith
