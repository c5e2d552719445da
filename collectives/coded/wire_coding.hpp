// How the values of a dense call travel: as they are, or coded with fewer bits.
#pragma once

#include <cstdint>
#include <string_view>

#include "compress/spec.hpp"
#include "core/error.hpp"

namespace pith {

struct Coding;

// What ranks must agree on of a compressor that codes values and keeps nothing between calls. It is
// small, since the arguments of every dense call have one.
class WireCoding {
 public:
  // Values travel as they are.
  WireCoding() = default;
  // An error (invalid_argument) for a spec that elects elements, keeps what coding loses, or has
  // codes that only mean something as a sum.
  static Expected<WireCoding> of(const Spec& spec);

  bool is_used() const { return scheme_ != nullptr; }

  // Precondition of these: is_used().

  // Only keys on which the coding depends are as they were given.
  Spec spec() const;
  Coding coding() const;
  std::string_view name() const;
  std::uint64_t seed() const { return seed_; }
  std::uint64_t digest() const;

 private:
  const Scheme* scheme_ = nullptr;
  Spec::Choices choices_ = {};
  double number_ = 0;  // the first of Spec::numbers
  std::uint64_t seed_ = 0;
};

}  // namespace pith
