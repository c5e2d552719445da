#include "compress/spec.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <optional>
#include <span>
#include <vector>

#include "core/mix.hpp"

namespace pith {

namespace {

constexpr std::array<std::string_view, 7> scheme_names = {"none",   "bf16",  "topk", "ar-topk",
                                                          "exdyna", "micro", "deft"};

// Which schemes have a key: one bit each.
constexpr unsigned of(Scheme scheme) { return 1u << static_cast<unsigned>(scheme); }
constexpr unsigned sparse_ones = of(Scheme::topk) | of(Scheme::ar_topk) | of(Scheme::exdyna) |
                                 of(Scheme::micro) | of(Scheme::deft);
constexpr unsigned summing_ones = sparse_ones & ~of(Scheme::topk);

struct Key {
  std::string_view name;
  unsigned schemes;
  std::span<const std::string_view> words;  // the values it may have; none: a number
  // The value as a number: index of its word.
  int (*get)(const Spec& spec);
  void (*set)(Spec& spec, int word);
};

template <auto field>
constexpr int get_word(const Spec& spec) {
  return static_cast<int>(spec.*field);
}
template <auto field>
constexpr void set_word(Spec& spec, int word) {
  using Field = std::remove_reference_t<decltype(spec.*field)>;
  spec.*field = static_cast<Field>(word);
}

constexpr std::array<DType, 3> value_types = {DType::f32, DType::bf16, DType::f16};

constexpr std::array<std::string_view, 3> election_words = {"staleness", "variance",
                                                            "variance-lagged"};
constexpr std::array<std::string_view, 2> score_words = {"compressed", "raw"};
constexpr std::array<std::string_view, 3> rule_words = {"quantile", "intended", "released"};
constexpr std::array<std::string_view, 2> partition_words = {"prefix", "neighbour"};
constexpr std::array<std::string_view, 5> exchange_words = {"auto", "direct", "ring",
                                                            "recursive-doubling", "split"};
constexpr std::array<std::string_view, 3> reduction_words = {"direct", "ring", "tree"};
constexpr std::array<std::string_view, 3> value_words = {"f32", "bf16", "f16"};
constexpr std::array<std::string_view, 2> feedback_words = {"0", "1"};
constexpr std::array<std::string_view, 2> hierarchy_words = {"flat", "host"};
constexpr std::array<std::string_view, 2> bypass_words = {"never", "auto"};
constexpr std::array<std::string_view, 2> nonfinite_words = {"propagate", "drop"};

int get_values(const Spec& spec) {
  return static_cast<int>(std::find(value_types.begin(), value_types.end(), spec.values) -
                          value_types.begin());
}
void set_values(Spec& spec, int word) { spec.values = value_types[static_cast<std::size_t>(word)]; }

constexpr std::array keys{
    Key{"density", sparse_ones, {}, nullptr, nullptr},
    Key{"election", of(Scheme::ar_topk), election_words, get_word<&Spec::election>,
        set_word<&Spec::election>},
    Key{"score", of(Scheme::ar_topk), score_words, get_word<&Spec::score>, set_word<&Spec::score>},
    Key{"rule", of(Scheme::exdyna) | of(Scheme::micro), rule_words, get_word<&Spec::rule>,
        set_word<&Spec::rule>},
    Key{"partition", of(Scheme::exdyna), partition_words, get_word<&Spec::partition>,
        set_word<&Spec::partition>},
    Key{"exchange", of(Scheme::topk), exchange_words, get_word<&Spec::exchange>,
        set_word<&Spec::exchange>},
    Key{"reduction", summing_ones, reduction_words, get_word<&Spec::reduction>,
        set_word<&Spec::reduction>},
    Key{"values", sparse_ones, value_words, get_values, set_values},
    Key{"feedback", sparse_ones, feedback_words, get_word<&Spec::feedback>,
        set_word<&Spec::feedback>},
    Key{"hierarchy", sparse_ones, hierarchy_words, get_word<&Spec::by_host>,
        set_word<&Spec::by_host>},
    Key{"bypass", sparse_ones | of(Scheme::bf16), bypass_words, get_word<&Spec::may_bypass>,
        set_word<&Spec::may_bypass>},
    Key{"nonfinite", sparse_ones, nonfinite_words, get_word<&Spec::drops_nonfinite>,
        set_word<&Spec::drops_nonfinite>},
    Key{"seed", sparse_ones, {}, nullptr, nullptr},
};

Spec defaults_of(Scheme scheme) {
  Spec spec;
  spec.scheme = scheme;
  const bool exclusive =
      scheme == Scheme::exdyna || scheme == Scheme::micro || scheme == Scheme::deft;
  if (spec.sparse()) spec.density = exclusive ? 0.001 : 0.01;
  return spec;
}

std::vector<std::string_view> keys_of(Scheme scheme) {
  std::vector<std::string_view> names;
  for (const Key& key : keys) {
    if ((key.schemes & of(scheme)) != 0) names.push_back(key.name);
  }
  return names;
}

Error bad(std::string_view text, const std::string& what) {
  return {Code::invalid_argument, fmt::format("spec \"{}\": {}", text, what)};
}

Expected<Scheme> find_scheme(std::string_view text, std::string_view name) {
  const auto* found = std::find(scheme_names.begin(), scheme_names.end(), name);
  if (found != scheme_names.end()) return static_cast<Scheme>(found - scheme_names.begin());
  const bool has_keys = name.find_first_of(",;= ") != name.npos;
  return bad(text, fmt::format("no compressor is called \"{}\", expected one of {}{}", name,
                               fmt::join(scheme_names, ", "),
                               has_keys ? "; keys follow a colon: NAME:key=value,key=value" : ""));
}

Expected<const Key*> find_key(std::string_view text, Scheme scheme, std::string_view name) {
  for (const Key& key : keys) {
    if (key.name == name && (key.schemes & of(scheme)) != 0) return &key;
  }
  const auto known = keys_of(scheme);
  const std::string_view owner = name_of(scheme);
  if (known.empty()) return bad(text, fmt::format("{} has no keys, found \"{}\"", owner, name));
  return bad(text, fmt::format("{} has no key \"{}\", expected one of {}", owner, name,
                               fmt::join(known, ", ")));
}

template <class T>
std::optional<T> number_of(std::string_view text) {
  T number{};
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

Error set_number(std::string_view text, const Key& key, std::string_view value, Spec& spec) {
  if (key.name == "seed") {
    const auto seed = number_of<std::uint64_t>(value);
    if (!seed) return bad(text, fmt::format("seed is \"{}\", expected 0 to 2^64 - 1", value));
    spec.seed = *seed;
    return {};
  }
  const auto density = number_of<double>(value);
  if (!density || !(*density > 0 && *density <= 1)) {
    return bad(text,
               fmt::format("{} is \"{}\", expected more than 0 and at most 1", key.name, value));
  }
  spec.density = *density;
  return {};
}

Error set_key(std::string_view text, const Key& key, std::string_view value, Spec& spec) {
  if (key.words.empty()) return set_number(text, key, value, spec);
  const auto found = std::find(key.words.begin(), key.words.end(), value);
  if (found == key.words.end()) {
    return bad(text, fmt::format("{} is \"{}\", expected one of {}", key.name, value,
                                 fmt::join(key.words, ", ")));
  }
  key.set(spec, static_cast<int>(found - key.words.begin()));
  return {};
}

}  // namespace

Expected<Spec> Spec::parse(std::string_view text) {
  const std::size_t colon = text.find(':');
  const Expected<Scheme> scheme = find_scheme(text, text.substr(0, colon));
  if (!scheme) return scheme.error();
  Spec spec = defaults_of(*scheme);
  std::vector<std::string_view> seen;
  std::size_t begin = colon;
  while (begin != std::string_view::npos) {
    const std::size_t end = text.find(',', begin + 1);
    const std::string_view part =
        text.substr(begin + 1, end == std::string_view::npos ? end : end - begin - 1);
    begin = end;
    const std::size_t equals = part.find('=');
    if (equals == 0 || equals == std::string_view::npos || equals + 1 == part.size()) {
      return bad(text, fmt::format("found \"{}\", expected key=value", part));
    }
    const std::string_view name = part.substr(0, equals);
    const Expected<const Key*> key = find_key(text, *scheme, name);
    if (!key) return key.error();
    if (std::find(seen.begin(), seen.end(), name) != seen.end()) {
      return bad(text, fmt::format("key \"{}\" comes twice", name));
    }
    seen.push_back(name);
    if (Error error = set_key(text, **key, part.substr(equals + 1), spec)) return error;
  }
  const bool is_rule_of_authors = spec.rule != Rule::quantile;
  const bool has_partition = std::find(seen.begin(), seen.end(), "partition") != seen.end();
  if (is_rule_of_authors && !has_partition) spec.partition = Partition::neighbour;
  return spec;
}

std::string Spec::text() const {
  std::string out(scheme_names[static_cast<std::size_t>(scheme)]);
  char separator = ':';
  for (const Key& key : keys) {
    if ((key.schemes & of(scheme)) == 0) continue;
    const std::string value =
        key.name == "density" ? fmt::format("{}", density)
        : key.name == "seed"  ? fmt::format("{}", seed)
                              : std::string(key.words[static_cast<std::size_t>(key.get(*this))]);
    out += fmt::format("{}{}={}", separator, key.name, value);
    separator = ',';
  }
  return out;
}

std::string_view name_of(Scheme scheme) { return scheme_names[static_cast<std::size_t>(scheme)]; }

// Four bits are enough for the word of a key.
Spec::Packed Spec::pack() const {
  auto words = static_cast<std::uint64_t>(scheme);
  unsigned shift = 4;
  for (const Key& key : keys) {
    if (key.words.empty()) continue;
    words |= static_cast<std::uint64_t>(key.get(*this)) << shift;
    shift += 4;
  }
  return {words, std::bit_cast<std::uint64_t>(density), seed};
}

Spec Spec::unpack(const Packed& packed) {
  Spec spec;
  spec.scheme = static_cast<Scheme>(packed[0] & 15);
  spec.density = std::bit_cast<double>(packed[1]);
  spec.seed = packed[2];
  unsigned shift = 4;
  for (const Key& key : keys) {
    if (key.words.empty()) continue;
    key.set(spec, static_cast<int>(packed[0] >> shift & 15));
    shift += 4;
  }
  return spec;
}

std::uint64_t Spec::digest() const {
  std::uint64_t hash = 0x73706563;
  for (const char c : text()) hash = mix(hash, static_cast<unsigned char>(c));
  return hash;
}

std::size_t elected_of(double density, std::size_t count) {
  const double product = density * static_cast<double>(count);
  return std::clamp<std::size_t>(static_cast<std::size_t>(product), 1,
                                 std::max<std::size_t>(count, 1));
}

}  // namespace pith
