// What a compressor does, and the one grammar that names it everywhere:
// `name` or `name:key=value,key=value`, as in "ar-topk:density=0.01,election=variance".
//
// What names and keys there are is the table's business, see scheme.hpp.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/dtype.hpp"
#include "core/error.hpp"

namespace pith {

struct Scheme;
extern const Scheme none_scheme;

// How values at common indices are reduced.
enum class Reduction : std::uint8_t { direct, ring, tree };

struct Spec {
  const Scheme* scheme = &none_scheme;
  // Of keys that several schemes have:
  double density = 0;
  Reduction reduction = Reduction::direct;
  DType values = DType::f32;  // as they travel: f32, bf16 or f16
  bool feedback = true;
  bool by_host = false;          // hierarchy=host
  bool may_bypass = true;        // bypass=auto
  bool drops_nonfinite = false;  // nonfinite=drop
  std::uint64_t seed = 0;
  // Of those of one scheme, which says what they are: numbers of words, and numbers.
  using Choices = std::array<std::uint8_t, 4>;
  Choices choices = {};
  std::array<double, 2> numbers = {};

  // A name or key that is not known, a duplicate, an empty part and a value out of range are errors
  // of code invalid_argument that list what is known.
  static Expected<Spec> parse(std::string_view text);
  // All keys at their defaults.
  static Spec of(const Scheme& scheme);
  // The same for equal specs, whatever the order of their keys; parses to an equal one.
  std::string text() const;
  std::uint64_t digest() const;
  // The same in a few words, for those who keep many: unpack(pack()) is equal.
  using Packed = std::array<std::uint64_t, 5>;
  Packed pack() const;
  static Spec unpack(const Packed& packed);
  // Whether elements are elected at all.
  bool sparse() const;

  bool operator==(const Spec&) const = default;
};

// How many elements of `count` a density elects: floor(density * count) in double, at least 1.
std::size_t elected_of(double density, std::size_t count);

}  // namespace pith
