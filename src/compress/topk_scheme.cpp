#include "compress/topk_scheme.hpp"

#include "compress/scheme_keys.hpp"
#include "compress/state_bytes.hpp"

namespace pith {

extern const Scheme topk_scheme;

namespace {

constexpr std::array<std::string_view, 5> exchange_words = {"auto", "direct", "ring",
                                                            "recursive-doubling", "split"};
constexpr auto topk_keys =
    keys::of_election(std::array{keys::choice<0>("exchange", exchange_words)});
constexpr std::array topk_sections{forecast_section};

}  // namespace

constinit const Scheme topk_scheme{.name = "topk",
                                   .summary = "every rank sends its own k largest magnitudes",
                                   .electors = Electors::each_rank,
                                   .exchange = "topk",
                                   .keys = topk_keys,
                                   .density = 0.01,
                                   .sections = topk_sections};

}  // namespace pith
