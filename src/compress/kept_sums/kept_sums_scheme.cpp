#include "compress/kept_sums/kept_sums_scheme.hpp"

#include "compress/scheme_keys.hpp"
#include "compress/state_bytes.hpp"

namespace pith {

extern const Scheme spardl_scheme;
extern const Scheme ok_topk_scheme;
extern const Scheme gtopk_scheme;

namespace {

constexpr auto kept_sums_keys = keys::of_election(std::array<Key, 0>{});
constexpr std::array kept_sums_sections{forecast_section};

}  // namespace

constinit const Scheme spardl_scheme{
    .name = "spardl",
    .summary = "of the sums of all ranks' k largest, k stay: as many in every part",
    .electors = Electors::each_then_owners,
    .exchange = "kept-sums",
    .keys = kept_sums_keys,
    .density = 0.01,
    .choices = {static_cast<std::uint8_t>(Keep::by_share)},
    .sections = kept_sums_sections};

constinit const Scheme ok_topk_scheme{
    .name = "ok-topk",
    .summary = "of the sums of all ranks' k largest, about k stay: the largest of all",
    .electors = Electors::each_then_owners,
    .exchange = "kept-sums",
    .keys = kept_sums_keys,
    .density = 0.01,
    .choices = {static_cast<std::uint8_t>(Keep::by_threshold)},
    .sections = kept_sums_sections};

constinit const Scheme gtopk_scheme{
    .name = "gtopk",
    .summary = "of the sums of two ranks' k largest, k stay, and of two such sums, up a tree",
    .electors = Electors::each_then_pairs,
    .exchange = "gtopk",
    .keys = kept_sums_keys,
    .density = 0.01,
    .sections = kept_sums_sections};

}  // namespace pith
