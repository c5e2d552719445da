// Keys that several schemes have, and building blocks for a scheme's own keys.
#pragma once

#include <algorithm>
#include <array>
#include <bit>

#include "compress/density_key.hpp"
#include "compress/scheme.hpp"

namespace pith::keys {

// A member of Spec that stores the number of a word.
template <auto member>
constexpr std::uint64_t get_word(const Spec& spec) {
  return static_cast<std::uint64_t>(spec.*member);
}
template <auto member>
constexpr void set_word(Spec& spec, std::uint64_t word) {
  spec.*member = static_cast<std::remove_reference_t<decltype(spec.*member)>>(word);
}

// A scheme's own key, stored in spec.choices[slot].
template <std::size_t slot>
constexpr Key choice(std::string_view name, std::span<const std::string_view> words) {
  return {.name = name,
          .words = words,
          .get = [](const Spec& spec) -> std::uint64_t { return spec.choices[slot]; },
          .set = [](Spec& spec,
                    std::uint64_t word) { spec.choices[slot] = static_cast<std::uint8_t>(word); }};
}
// A number greater than `least` and at most `most`, described by `expected`; in spec.numbers[slot].
template <std::size_t slot>
constexpr Key number(std::string_view name, double least, double most, std::string_view expected) {
  return {.name = name,
          .get = [](const Spec& spec) { return std::bit_cast<std::uint64_t>(spec.numbers[slot]); },
          .set = [](Spec& spec,
                    std::uint64_t bits) { spec.numbers[slot] = std::bit_cast<double>(bits); },
          .kind = Key::Kind::real,
          .least = least,
          .most = most,
          .expected = expected};
}

inline constexpr std::array<std::string_view, 2> objective_words = {"ratio", "paper"};
inline constexpr std::array<std::string_view, 5> quantise_words = {"never", "bf16", "qsgd8",
                                                                   "qsgd4", "auto"};
inline constexpr std::array<std::string_view, 3> reduction_words = {"direct", "ring", "tree"};
inline constexpr std::array<std::string_view, 3> value_words = {"f32", "bf16", "f16"};
inline constexpr std::array<DType, 3> value_types = {DType::f32, DType::bf16, DType::f16};
inline constexpr std::array<std::string_view, 2> feedback_words = {"0", "1"};
inline constexpr std::array<std::string_view, 2> hierarchy_words = {"flat", "host"};
inline constexpr std::array<std::string_view, 2> bypass_words = {"never", "auto"};
inline constexpr std::array<std::string_view, 2> nonfinite_words = {"propagate", "drop"};

inline constexpr Key density{.name = "density",
                             .get = density_bits,
                             .set = set_density,
                             .kind = Key::Kind::density,
                             .expected = density_expected};
inline constexpr Key objective{"objective", objective_words, get_word<&Spec::objective>,
                               set_word<&Spec::objective>};
inline constexpr Key weight{
    .name = "weight",
    .get = [](const Spec& spec) { return std::bit_cast<std::uint64_t>(spec.time_weight); },
    .set = [](Spec& spec, std::uint64_t bits) { spec.time_weight = std::bit_cast<double>(bits); },
    .kind = Key::Kind::real,
    .most = 1,
    .expected = "more than 0 and at most 1"};
inline constexpr Key quantise{"quantise", quantise_words, get_word<&Spec::quantise>,
                              set_word<&Spec::quantise>};
inline constexpr Key reduction{"reduction", reduction_words, get_word<&Spec::reduction>,
                               set_word<&Spec::reduction>};
inline constexpr Key values{
    "values", value_words,
    [](const Spec& spec) {
      const auto* const found = std::find(value_types.begin(), value_types.end(), spec.values);
      return static_cast<std::uint64_t>(found - value_types.begin());
    },
    [](Spec& spec, std::uint64_t word) { spec.values = value_types[word]; }};
inline constexpr Key feedback{"feedback", feedback_words, get_word<&Spec::feedback>,
                              set_word<&Spec::feedback>};
inline constexpr Key hierarchy{"hierarchy", hierarchy_words, get_word<&Spec::by_host>,
                               set_word<&Spec::by_host>};
inline constexpr Key bypass{"bypass", bypass_words, get_word<&Spec::may_bypass>,
                            set_word<&Spec::may_bypass>};
inline constexpr Key nonfinite{"nonfinite", nonfinite_words, get_word<&Spec::drops_nonfinite>,
                               set_word<&Spec::drops_nonfinite>};
inline constexpr Key seed{.name = "seed",
                          .get = [](const Spec& spec) { return spec.seed; },
                          .set = [](Spec& spec, std::uint64_t value) { spec.seed = value; },
                          .kind = Key::Kind::integer,
                          .most = 0x1p64,
                          .expected = "0 to 2^64 - 1"};

// The keys of a scheme with an election: its own, between those that all such schemes have.
template <std::size_t n>
constexpr std::array<Key, n + 10> of_election(const std::array<Key, n>& own,
                                              const Key& values_key = values) {
  std::array<Key, n + 10> all;
  const std::array<Key, 4> first = {density, objective, weight, quantise};
  const std::array<Key, 6> last = {values_key, feedback, hierarchy, bypass, nonfinite, seed};
  std::copy(first.begin(), first.end(), all.begin());
  std::copy(own.begin(), own.end(), all.begin() + first.size());
  std::copy(last.begin(), last.end(), all.begin() + first.size() + n);
  return all;
}

}  // namespace pith::keys
