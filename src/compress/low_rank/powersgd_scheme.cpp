#include "compress/low_rank/factor_keys.hpp"

namespace pith {

extern const Scheme powersgd_scheme;

namespace {

constexpr Key start_key{
    .name = "start",
    .get = [](const Spec& spec) { return static_cast<std::uint64_t>(spec.numbers[0]); },
    .set = [](Spec& spec, std::uint64_t calls) { spec.numbers[0] = double(calls); },
    .kind = Key::Kind::integer,
    .most = 0x1p32,
    .expected = "0 to 2^32"};
constexpr std::array powersgd_keys{keys::factor_rank, start_key, keys::seed};

constexpr std::array powersgd_sections{factors_section};

}  // namespace

// [Vogels et al., "PowerSGD", NeurIPS 2019].
constinit const Scheme powersgd_scheme{
    .name = "powersgd",
    .summary = "every matrix as two factors of low rank, the rest sent later",
    .exchange = "low-rank",
    .keys = powersgd_keys,
    .choices = {4},
    .rank = stated_rank,
    .warm_up = {.dense_calls = [](const Spec& spec) { return start_key.get(spec); }},
    .sections = powersgd_sections};

}  // namespace pith
