#include "compress/low_rank/factor_keys.hpp"

namespace pith {

extern const Scheme atomo_scheme;

namespace {

// So long a smaller side is decomposed in some 10 ms, and one of 1024 in a second.
constexpr double soon_decomposed = 256;
constexpr Key side_key{
    .name = "side",
    .get = [](const Spec& spec) { return static_cast<std::uint64_t>(spec.numbers[0]); },
    .set = [](Spec& spec, std::uint64_t side) { spec.numbers[0] = static_cast<double>(side); },
    .kind = Key::Kind::integer,
    .least = 8,
    .most = 65536,
    .expected = "8 to 65536"};
// Matrices of smaller sides than 4 ranks have more elements than factors of them.
void widen_side(Spec& spec, std::span<const std::string_view> keys) {
  if (std::ranges::find(keys, "side") != keys.end()) return;
  spec.numbers[0] = std::max(soon_decomposed, 8.0 * spec.choices[0]);
}
constexpr std::array atomo_keys{keys::factor_rank, side_key, keys::seed};
constexpr std::array atomo_sections{factors_section};

}  // namespace

// [Wang et al., "ATOMO: Communication-efficient Learning via Atomic Sparsification", NeurIPS 2018].
constinit const Scheme atomo_scheme{
    .name = "atomo",
    .summary = "some singular values of every matrix with their vectors, drawn without bias",
    .exchange = "atomo",
    .keys = atomo_keys,
    .choices = {3},
    .numbers = {soon_decomposed},
    .feedback = false,
    .rank = stated_rank,
    .complete = widen_side,
    .sections = atomo_sections};

}  // namespace pith
