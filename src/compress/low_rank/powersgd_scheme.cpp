#include "compress/low_rank/stated_matrices.hpp"
#include "compress/scheme_keys.hpp"
#include "compress/state_bytes.hpp"

namespace pith {

extern const Scheme powersgd_scheme;

namespace {

constexpr std::size_t most_rank = 128;
constexpr Key rank_key{
    .name = "rank",
    .get = [](const Spec& spec) -> std::uint64_t { return spec.choices[0]; },
    .set = [](Spec& spec,
              std::uint64_t rank) { spec.choices[0] = static_cast<std::uint8_t>(rank); },
    .kind = Key::Kind::integer,
    .least = 1,
    .most = most_rank,
    .expected = "1 to 128"};
constexpr Key start_key{
    .name = "start",
    .get = [](const Spec& spec) { return static_cast<std::uint64_t>(spec.numbers[0]); },
    .set = [](Spec& spec, std::uint64_t calls) { spec.numbers[0] = double(calls); },
    .kind = Key::Kind::integer,
    .most = 0x1p32,
    .expected = "0 to 2^32"};
constexpr std::array powersgd_keys{rank_key, start_key, keys::seed};

// Empty before the shape is known.
void save_factors(const SchemeState& state, StateWriter& out) {
  const LowRankState& own = state.low_rank;
  if (!own.layout) return;
  const auto matrices = own.layout->matrices();
  out.array(std::vector(matrices.begin(), matrices.end()));
  out.array(own.right);
}

bool load_factors(SchemeState& state, const StateShape& shape, StateReader& in) {
  if (in.ended()) return true;
  std::vector<MatrixShape> matrices;
  LowRankState own;
  if (!in.array(matrices) || !in.array(own.right)) return false;
  if (!elements_of(matrices)) return false;
  own.layout = std::make_shared<LowRankLayout>(matrices, rank_of(shape.spec));
  if (!own.right.empty() && own.right.size() != own.layout->right_count()) return false;
  state.low_rank = std::move(own);
  return std::ranges::all_of(state.low_rank.right, [](float x) { return std::fabs(x) <= 2; });
}

constexpr std::array powersgd_sections{StateSection{"low-rank", save_factors, load_factors}};

}  // namespace

// [Vogels et al., "PowerSGD", NeurIPS 2019].
constinit const Scheme powersgd_scheme{
    .name = "powersgd",
    .summary = "every matrix as two factors of low rank, the rest sent later",
    .exchange = "low-rank",
    .keys = powersgd_keys,
    .choices = {4},
    .rank = [](const Spec& spec) -> std::size_t { return spec.choices[0]; },
    .dense_calls = [](const Spec& spec) { return start_key.get(spec); },
    .sections = powersgd_sections};

}  // namespace pith
