// What a compressor does, and the one grammar that names it everywhere:
// `name` or `name:key=value,key=value`, as in "ar-topk:density=0.01,election=variance".
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/dtype.hpp"
#include "core/error.hpp"

namespace pith {

enum class Scheme : std::uint8_t { none, bf16, topk, ar_topk, exdyna, micro, deft };
enum class Election : std::uint8_t { staleness, variance, variance_lagged };
enum class Score : std::uint8_t { compressed, raw };
enum class Rule : std::uint8_t { quantile, intended, released };
enum class Partition : std::uint8_t { prefix, neighbour };
std::string_view name_of(Scheme scheme);
// How lists of pairs are shared (topk).
enum class Exchange : std::uint8_t { automatic, direct, ring, recursive_doubling, split };
// How values at common indices are reduced (ar-topk, exdyna and its kin).
enum class Reduction : std::uint8_t { direct, ring, tree };

struct Spec {
  Scheme scheme = Scheme::none;
  double density = 0;
  Election election = Election::staleness;
  Score score = Score::compressed;
  Rule rule = Rule::quantile;
  Partition partition = Partition::prefix;
  Exchange exchange = Exchange::automatic;
  Reduction reduction = Reduction::direct;
  DType values = DType::f32;  // f32, bf16 or f16
  bool feedback = true;
  bool by_host = false;          // hierarchy=host
  bool may_bypass = true;        // bypass=auto
  bool drops_nonfinite = false;  // nonfinite=drop
  std::uint64_t seed = 0;

  // A name or key that is not known, a duplicate, an empty part and a value out of range are errors
  // of code invalid_argument that list what is known.
  static Expected<Spec> parse(std::string_view text);
  // The same for equal specs, whatever the order of their keys; parses to an equal one.
  std::string text() const;
  std::uint64_t digest() const;
  // The same in a few words, for those who keep many: unpack(pack()) is equal.
  using Packed = std::array<std::uint64_t, 3>;
  Packed pack() const;
  static Spec unpack(const Packed& packed);
  // Whether elements are elected at all: none and bf16 are dense.
  bool sparse() const { return scheme >= Scheme::topk; }

  bool operator==(const Spec&) const = default;
};

// How many elements of `count` a density elects: floor(density * count) in double, at least 1.
std::size_t elected_of(double density, std::size_t count);

}  // namespace pith
