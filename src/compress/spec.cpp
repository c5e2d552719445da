#include "compress/spec.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "compress/density_key.hpp"
#include "compress/scheme.hpp"
#include "core/mix.hpp"

namespace pith {

namespace {

Error bad(std::string_view text, const std::string& what) {
  return {Code::invalid_argument, fmt::format("spec \"{}\": {}", text, what)};
}

template <class All, class Name>
std::vector<std::string_view> names_of(const All& all, Name name) {
  std::vector<std::string_view> names;
  for (const auto& one : all) names.push_back(name(one));
  return names;
}

Expected<const Scheme*> find_scheme(std::string_view text, std::string_view name) {
  for (const Scheme* scheme : schemes()) {
    if (scheme->name == name) return scheme;
  }
  const auto known = names_of(schemes(), [](const Scheme* scheme) { return scheme->name; });
  const bool has_keys = name.find_first_of(",;= ") != name.npos;
  return bad(text, fmt::format("no compressor is called \"{}\", expected one of {}{}", name,
                               fmt::join(known, ", "),
                               has_keys ? "; keys follow a colon: NAME:key=value,key=value" : ""));
}

Expected<const Key*> find_key(std::string_view text, const Scheme& scheme, std::string_view name) {
  for (const Key& key : scheme.keys) {
    if (key.name == name) return &key;
  }
  if (scheme.keys.empty()) {
    return bad(text, fmt::format("{} has no keys, found \"{}\"", scheme.name, name));
  }
  const auto known = names_of(scheme.keys, [](const Key& key) { return key.name; });
  return bad(text, fmt::format("{} has no key \"{}\", expected one of {}", scheme.name, name,
                               fmt::join(known, ", ")));
}

template <class T>
std::optional<T> number_of(std::string_view text) {
  T number{};
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<std::uint64_t> parse_density(std::string_view text) {
  if (text == "auto") return usual_density_range();
  const std::size_t dots = text.find(range_separator);
  if (dots == text.npos) {
    const auto number = number_of<double>(text);
    if (!number || !(*number > 0 && *number <= 1)) return std::nullopt;
    return std::bit_cast<std::uint64_t>(*number);
  }
  const auto least = number_of<float>(text.substr(0, dots));
  const auto most = number_of<float>(text.substr(dots + range_separator.size()));
  const bool is_range = least && most && *least > 0 && *least < *most && *most <= 1;
  return is_range ? std::optional(density_range(*least, *most)) : std::nullopt;
}

// The number as the key stores it.
std::optional<std::uint64_t> parse_number(const Key& key, std::string_view text) {
  if (key.kind == Key::Kind::density) return parse_density(text);
  if (key.kind == Key::Kind::integer) {
    const auto number = number_of<std::uint64_t>(text);
    const bool fits = number && double(*number) >= key.least && double(*number) <= key.most;
    return fits ? number : std::nullopt;
  }
  const auto number = number_of<double>(text);
  if (!number || !(*number > key.least && *number <= key.most)) return std::nullopt;
  return std::bit_cast<std::uint64_t>(*number);
}

std::vector<std::string_view> words_in(const Key& key, std::uint64_t set) {
  std::vector<std::string_view> words;
  for (std::size_t i = 0; i < key.words.size(); ++i) {
    if ((set >> i & 1) != 0) words.push_back(key.words[i]);
  }
  return words;
}

std::string text_of(const Key& key, std::uint64_t value) {
  switch (key.kind) {
    case Key::Kind::word:
      return std::string(key.words[value]);
    case Key::Kind::set:
      return fmt::format("{}", fmt::join(words_in(key, value), "+"));
    case Key::Kind::integer:
      return fmt::format("{}", value);
    case Key::Kind::real:
      return fmt::format("{}", std::bit_cast<double>(value));
    case Key::Kind::density:
      return density_text(value);
  }
  return {};
}

std::optional<std::uint64_t> parse_word(const Key& key, std::string_view word) {
  const auto found = std::find(key.words.begin(), key.words.end(), word);
  if (found == key.words.end()) return std::nullopt;
  return static_cast<std::uint64_t>(found - key.words.begin());
}

// None: a word is not known, or comes twice.
std::optional<std::uint64_t> parse_set(const Key& key, std::string_view text) {
  std::uint64_t set = 0;
  for (std::size_t begin = 0; begin != text.npos;) {
    const std::size_t end = text.find('+', begin);
    const auto word = parse_word(key, text.substr(begin, end - begin));
    if (!word || (set >> *word & 1) != 0) return std::nullopt;
    set |= std::uint64_t{1} << *word;
    begin = end == text.npos ? end : end + 1;
  }
  return set;
}

Error set_key(std::string_view text, const Key& key, std::string_view value, Spec& spec) {
  const bool is_set = key.kind == Key::Kind::set;
  const auto found = is_set              ? parse_set(key, value)
                     : key.words.empty() ? parse_number(key, value)
                                         : parse_word(key, value);
  if (found) {
    key.set(spec, *found);
    return {};
  }
  const std::string expected =
      key.words.empty() ? std::string(key.expected)
                        : fmt::format("{} {}", is_set ? "some, joined by +, of" : "one of",
                                      fmt::join(key.words, ", "));
  return bad(text, fmt::format("{} is \"{}\", expected {}", key.name, value, expected));
}

Error check_density(std::string_view text, const Spec& spec) {
  if (spec.adapts() && spec.by_host) {
    return bad(text, "density changes from call to call, expected a number with hierarchy=host");
  }
  constexpr Objective usual = Objective::ratio;
  const bool is_usual = spec.objective == usual && spec.time_weight == usual_weight(usual);
  if (spec.quantises() && spec.objective != usual) {
    return bad(text, "objective is paper, expected ratio with quantise");
  }
  if (spec.adapts() || (is_usual && !spec.quantises() && !spec.chooses_scheme())) return {};
  return bad(text, spec.chooses_scheme()
                       ? "density is fixed, expected auto or a range"
                       : "density is fixed, expected auto or a range with objective, weight and "
                         "quantise");
}

// A call that elects would drop what such a coding has kept.
Error check_feedback(std::string_view text, const Spec& spec) {
  if (!spec.chooses_scheme() || spec.feedback) return {};
  for (const Form form : all_forms) {
    if (!spec.may_take(form) || !keeps_coding_loss(in_form(spec, form))) continue;
    return bad(text,
               fmt::format("feedback is 0, expected 1 with {}, which keeps what it rounds off",
                           name_of(form)));
  }
  return {};
}

// A bound as large as the values would let all of them be zero.
Error check_bounds(std::string_view text, const Spec& spec) {
  if (!spec.scheme->varying) return {};
  const VaryingCoding coding = spec.scheme->varying(spec);
  if (coding.kind != VaryingCoding::Kind::bounded) return {};
  if (coding.relative >= 1 && std::isfinite(coding.relative)) {
    return bad(text, fmt::format("rel is {}, expected more than 0 and below 1, or inf with abs",
                                 coding.relative));
  }
  if (std::isfinite(coding.absolute) || std::isfinite(coding.relative)) return {};
  return bad(text, "abs is inf and rel is inf, expected a bound by one of them");
}

}  // namespace

Expected<Spec> Spec::parse(std::string_view text) {
  const std::size_t colon = text.find(':');
  const Expected<const Scheme*> found = find_scheme(text, text.substr(0, colon));
  if (!found) return found.error();
  const Scheme& scheme = **found;
  if (!scheme.lacks.empty()) {
    return bad(text, fmt::format("{} needs {}", scheme.name, scheme.lacks));
  }
  Spec spec = of(scheme);
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
    const Expected<const Key*> key = find_key(text, scheme, name);
    if (!key) return key.error();
    if (std::find(seen.begin(), seen.end(), name) != seen.end()) {
      return bad(text, fmt::format("key \"{}\" comes twice", name));
    }
    seen.push_back(name);
    if (Error error = set_key(text, **key, part.substr(equals + 1), spec)) return error;
  }
  if (scheme.complete) scheme.complete(spec, seen);
  const bool is_weighed = std::find(seen.begin(), seen.end(), "weight") != seen.end();
  if (!is_weighed) spec.time_weight = usual_weight(spec.objective);
  if (Error error = check_density(text, spec)) return error;
  if (Error error = check_bounds(text, spec)) return error;
  if (Error error = check_feedback(text, spec)) return error;
  follow(spec, {});  // a candidate of the objective, or a form
  return spec;
}

Spec Spec::of(const Scheme& scheme) {
  Spec spec;
  spec.scheme = &scheme;
  spec.density = scheme.density;
  spec.values = scheme.values;
  spec.choices = scheme.choices;
  spec.numbers = scheme.numbers;
  spec.feedback = scheme.feedback;
  if (scheme.electors != Electors::as_chosen) return spec;
  spec.allowed = usual_forms();
  set_density(spec, usual_density_range());
  return spec;
}

const Scheme& Spec::stated() const { return chooses_scheme() ? auto_scheme : *scheme; }

bool Spec::sparse() const { return scheme->electors != Electors::nobody; }

double Spec::largest_density() const {
  if (adapts()) return double(most_density);
  const auto density_at = scheme->warm_up.density_at;
  return density_at ? density_at(*this, 0) : density;
}

std::string Spec::text() const {
  std::string out(stated().name);
  char separator = ':';
  for (const Key& key : stated().keys) {
    const std::uint64_t value = key.get(*this);
    out += fmt::format("{}{}={}", separator, key.name, text_of(key, value));
    separator = ',';
  }
  return out;
}

// A byte for the scheme, four bits per word key; then one word per number or set.
Spec::Packed Spec::pack() const {
  const auto all = schemes();
  Packed packed = {
      static_cast<std::uint64_t>(std::find(all.begin(), all.end(), &stated()) - all.begin())};
  unsigned shift = 8;
  std::size_t number = 1;
  for (const Key& key : stated().keys) {
    const std::uint64_t value = key.get(*this);
    if (key.kind == Key::Kind::word) {
      packed[0] |= value << std::exchange(shift, shift + 4);
    } else {
      packed[number++] = value;
    }
  }
  return packed;
}

// A torn read, by a concurrent reader, may mix words of two specs; the result is still valid.
Spec Spec::unpack(const Packed& packed) {
  const auto all = schemes();
  Spec spec = of(*all[std::min<std::size_t>(packed[0] & 255, all.size() - 1)]);
  unsigned shift = 8;
  std::size_t number = 1;
  for (const Key& key : spec.stated().keys) {
    if (key.kind == Key::Kind::word) {
      const std::uint64_t word = packed[0] >> std::exchange(shift, shift + 4) & 15;
      key.set(spec, std::min<std::uint64_t>(word, key.words.size() - 1));
    } else {
      key.set(spec, packed[number++]);
    }
  }
  follow(spec, {});
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
