// A compressor's specification and its one grammar: `name` or `name:key=value,key=value`, as in
// "ar-topk:density=0.01,election=variance".
//
// Names and keys are defined by the table of schemes, see scheme.hpp.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "compress/auto/forms.hpp"
#include "core/dtype.hpp"
#include "core/error.hpp"

namespace pith {

extern const Scheme none_scheme;
extern const Scheme auto_scheme;

// How values at common indices are reduced.
enum class Reduction : std::uint8_t { direct, ring, tree };

// What density=auto makes the least: time / gain, or what AR-Topk's authors weigh.
enum class Objective : std::uint8_t { ratio, paper };
// How much the time weighs in it, against the gain, if the spec does not say.
inline constexpr double usual_weight(Objective objective) {
  return objective == Objective::ratio ? 0.5 : 0.6;
}

// How density=auto may send all elements with fewer bits; the first ones are numbered like the
// forms. None that rounds small values to zero in every call, as int8 does: no residual keeps them.
// (bf16 rounds each value by at most its 256th part.)
enum class Quantise : std::uint8_t { never, bf16, qsgd8, qsgd4, any };

struct Spec {
  const Scheme* scheme = &none_scheme;  // of `auto`: the present one
  std::uint64_t allowed = 0;            // of `auto`: its forms, by bits of their numbers; else 0
  // Keys that several schemes have:
  double density = 0;       // with density=auto: the present one
  float least_density = 0;  // the range of density=auto; 0: it is fixed
  float most_density = 0;
  Objective objective = Objective::ratio;  // of density=auto, as the next one
  double time_weight = usual_weight(Objective::ratio);
  Quantise quantise = Quantise::never;
  Form form = Form::none;  // the present one
  Reduction reduction = Reduction::direct;
  DType values = DType::f32;  // type in messages: f32, bf16 or f16
  bool feedback = true;
  bool by_host = false;          // hierarchy=host
  bool may_bypass = true;        // bypass=auto
  bool drops_nonfinite = false;  // nonfinite=drop
  std::uint64_t seed = 0;
  // Keys of one scheme, which defines their meaning: numbers of words, and numbers.
  using Choices = std::array<std::uint8_t, 4>;
  Choices choices = {};
  using Numbers = std::array<double, 4>;
  Numbers numbers = {};

  // Unknown names and keys, duplicates, empty parts and values out of range are errors
  // (invalid_argument) that list what is allowed.
  static Expected<Spec> parse(std::string_view text);
  // All keys at their defaults.
  static Spec of(const Scheme& scheme);
  // Canonical: independent of the order of keys; parses to an equal spec.
  std::string text() const;
  std::uint64_t digest() const;
  // A compact form for storing many specs: unpack(pack()) is equal.
  using Packed = std::array<std::uint64_t, 6>;
  Packed pack() const;
  static Spec unpack(const Packed& packed);
  // The scheme that the text names.
  const Scheme& stated() const;
  // Whether that is `auto`.
  bool chooses_scheme() const { return allowed != 0; }
  // Whether elements are elected.
  bool sparse() const;
  // Whether density=auto.
  bool adapts() const { return most_density > 0; }
  // That calls may have.
  double largest_density() const;

  // Whether density=auto has made calls dense, in float32.
  bool adapted_to_dense() const {
    return adapts() && may_bypass && density >= 1 && form == Form::none;
  }
  bool quantises() const { return quantise != Quantise::never; }
  bool may_take(Form one) const {
    if (one == Form::none) return false;
    if (chooses_scheme()) return (allowed >> number_of(one) & 1) != 0;
    if (quantise == Quantise::any) return one <= Form::qsgd4;
    return number_of(one) == static_cast<std::size_t>(quantise);
  }

  bool operator==(const Spec&) const = default;
};

// The number of elements that a density elects: floor(density * count) in double, at least 1.
std::size_t elected_of(double density, std::size_t count);

}  // namespace pith
