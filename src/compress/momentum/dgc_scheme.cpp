// Deep gradient compression [Lin et al., ICLR 2018]: top-k with momentum correction, clipping of
// each rank's gradients, and a density that falls to its target in the first calls. The authors
// elect by a sampled threshold; here the election is exact.
#include <cmath>

#include "compress/state_bytes.hpp"
#include "compress/thresholds/threshold_keys.hpp"

namespace pith {

extern const Scheme dgc_scheme;

namespace {

// As in topk_scheme.cpp.
constexpr std::array<std::string_view, 5> exchange_words = {"auto", "direct", "ring",
                                                            "recursive-doubling", "split"};
enum Slot : std::size_t { momentum, warmup, clip, target };

constexpr double below_one = 0x1.fffffffffffffp-1;
constexpr double below_zero = -4.9406564584124654e-324;
// Spec::density is that of the present call.
constexpr Key target_density{
    .name = "density",
    .get = [](const Spec& spec) { return std::bit_cast<std::uint64_t>(spec.numbers[target]); },
    .set =
        [](Spec& spec, std::uint64_t bits) {
          spec.numbers[target] = spec.density = std::bit_cast<double>(bits);
        },
    .kind = Key::Kind::real,
    .most = 1,
    .expected = "more than 0 and at most 1"};
constexpr Key warmup_calls{
    .name = "warmup",
    .get = [](const Spec& spec) { return static_cast<std::uint64_t>(spec.numbers[warmup]); },
    .set = [](Spec& spec,
              std::uint64_t calls) { spec.numbers[warmup] = static_cast<double>(calls); },
    .kind = Key::Kind::integer,
    .most = 1e9,
    .expected = "a number of calls, 0 to 1000000000"};
constexpr std::array dgc_keys{
    target_density,
    keys::number<momentum>("momentum", below_zero, below_one, "0 to less than 1"),
    warmup_calls,
    keys::number<clip>("clip", below_zero, 3.4e38, "0, for no limit, or the most of a norm"),
    keys::choice<0>("exchange", exchange_words),
    keys::values,
    keys::bypass,
    keys::nonfinite};
constexpr std::array dgc_sections{forecast_section};

// From the target's (w+1)-th root down to itself: every call of the first w elects the same part of
// what the one before did.
double density_at(const Spec& spec, std::uint64_t step) {
  const double calls = spec.numbers[warmup] + 1;
  return std::pow(spec.numbers[target], std::min((double(step) + 1) / calls, 1.0));
}

Correction correction(const Spec& spec) {
  return {static_cast<float>(spec.numbers[momentum]), static_cast<float>(spec.numbers[clip])};
}

}  // namespace

constinit const Scheme dgc_scheme{
    .name = "dgc",
    .summary = "as topk, with momentum inside the residual and a warm-up of the density",
    .electors = Electors::each_rank,
    .exchange = "topk",
    .keys = dgc_keys,
    .density = 0.001,
    .numbers = {0.9, 0, 0, 0.001},
    .warm_up = {.density_at = density_at},
    .correction = correction,
    .sections = dgc_sections};

}  // namespace pith
