// Schemes without an election whose messages are as long as the values make them.
#include <limits>

#include "compress/scheme_keys.hpp"

namespace pith {

extern const Scheme lossless_scheme;
extern const Scheme bounded_scheme;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double fastest_level = 1;
constexpr double usual_bound = 1e-3;

// Of the entropy coder, in spec.numbers[0].
constexpr Key level{
    .name = "level",
    .get = [](const Spec& spec) { return static_cast<std::uint64_t>(spec.numbers[0]); },
    .set = [](Spec& spec, std::uint64_t value) { spec.numbers[0] = static_cast<double>(value); },
    .kind = Key::Kind::integer,
    .least = fastest_level,
    .most = 19,
    .expected = "1 to 19"};
constexpr std::array lossless_keys{level};
constexpr std::array bounded_keys{
    keys::number<0>("abs", 0, infinity, "more than 0, or inf for no such bound"),
    keys::number<1>("rel", 0, infinity, "more than 0 and below 1, or inf for no such bound"),
    keys::choice<0>("feedback", keys::feedback_words)};

// A spec with `abs` alone means that bound and no other.
void complete_bounds(Spec& spec, std::span<const std::string_view> keys) {
  const auto is_given = [keys](std::string_view name) {
    return std::ranges::count(keys, name) > 0;
  };
  if (is_given("abs") && !is_given("rel")) spec.numbers[1] = infinity;
}

// As float32, in which no bound is zero, and those beyond its range are none.
float bound_of(double number) {
  using Limits = std::numeric_limits<float>;
  if (number > double{Limits::max()}) return Limits::infinity();
  return std::max(static_cast<float>(number), Limits::min());
}

#ifdef PITH_ZSTD
constexpr std::string_view lossless_lacks;
#else
constexpr std::string_view lossless_lacks = "libzstd, without which this library was built";
#endif

}  // namespace

const Scheme bounded_scheme{
    .name = "bounded",
    .summary = "everything with a bound on the error of each element, in as few bits as it takes",
    .exchange = "varying",
    .keys = bounded_keys,
    .numbers = {infinity, usual_bound},
    .varying = [](const Spec& spec) -> VaryingCoding {
      return {.kind = VaryingCoding::Kind::bounded,
              .absolute = bound_of(spec.numbers[0]),
              .relative = bound_of(spec.numbers[1]),
              .keeps_rest = spec.choices[0] == 1};
    },
    .complete = complete_bounds};

const Scheme lossless_scheme{
    .name = "lossless",
    .summary = "the sum of everything in float32, by rank; messages without what repeats in them",
    .exchange = "varying",
    .keys = lossless_keys,
    .numbers = {fastest_level},
    .varying = [](const Spec& spec) -> VaryingCoding {
      return {.kind = VaryingCoding::Kind::lossless,
              .level = static_cast<std::uint8_t>(spec.numbers[0])};
    },
    .lacks = lossless_lacks};

}  // namespace pith
