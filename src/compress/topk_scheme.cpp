#include "compress/topk_scheme.hpp"

#include "compress/scheme_keys.hpp"
#include "compress/state_bytes.hpp"

namespace pith {

extern const Scheme topk_scheme;

namespace {

constexpr std::array<std::string_view, 5> exchange_words = {"auto", "direct", "ring",
                                                            "recursive-doubling", "split"};

// The last ones are codings of float32 values.
constexpr std::array<std::string_view, 5> topk_value_words = {"f32", "bf16", "f16", "int8", "int4"};
constexpr std::size_t first_coding = keys::value_words.size();
constexpr std::size_t coding_slot = 1;  // of Spec::choices: bits of a value, or 0
constexpr std::uint64_t value_word(const Spec& spec) {
  const std::uint8_t bits = spec.choices[coding_slot];
  if (bits == 0) return keys::values.get(spec);
  return bits == 8 ? first_coding : first_coding + 1;
}
constexpr void set_value_word(Spec& spec, std::uint64_t word) {
  const bool is_coding = word >= first_coding;
  keys::values.set(spec, is_coding ? 0 : word);
  spec.choices[coding_slot] = is_coding ? (word == first_coding ? 8 : 4) : 0;
}
constexpr Key topk_values{"values", topk_value_words, value_word, set_value_word};

constexpr auto topk_keys =
    keys::of_election(std::array{keys::choice<0>("exchange", exchange_words)}, topk_values);
constexpr std::array topk_sections{forecast_section};

// Values are nearly as large as each other, since only the largest are sent.
std::optional<Coding> coding_of_lists(const Spec& spec) {
  const std::uint8_t bits = spec.choices[coding_slot];
  if (bits == 0) return {};
  return Coding{.kind = Coding::Kind::levels, .bits = bits, .block = 128};
}

}  // namespace

constinit const Scheme topk_scheme{.name = "topk",
                                   .summary = "every rank sends its own k largest magnitudes",
                                   .electors = Electors::each_rank,
                                   .exchange = "topk",
                                   .keys = topk_keys,
                                   .density = 0.01,
                                   .list_coding = coding_of_lists,
                                   .sections = topk_sections};

}  // namespace pith
