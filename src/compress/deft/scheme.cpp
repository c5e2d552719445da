#include "compress/scheme_keys.hpp"

namespace pith {

extern const Scheme deft_scheme;

namespace {

constexpr auto deft_keys = keys::of_election(std::array{keys::reduction});

// Pieces that are sent whole have no elector.
Unelected unelected(const Spec&, int) { return {.whole_parts = true}; }

}  // namespace

constinit const Scheme deft_scheme{.name = "deft",
                                   .summary = "every rank elects in some layers, by their norms",
                                   .electors = Electors::owners,
                                   .exchange = "deft",
                                   .keys = deft_keys,
                                   .density = 0.001,
                                   .checks = {.unelected = unelected}};

}  // namespace pith
