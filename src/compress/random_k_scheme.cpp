#include "compress/scheme_keys.hpp"

namespace pith {

extern const Scheme random_k_scheme;

namespace {

constexpr auto random_k_keys = keys::of_election(std::array<Key, 0>{});

}  // namespace

constinit const Scheme random_k_scheme{
    .name = "randomk",
    .summary = "elements drawn from a common seed, whose indices no rank sends",
    .electors = Electors::all_alike,
    .exchange = "random-k",
    .keys = random_k_keys,
    .density = 0.01};

}  // namespace pith
