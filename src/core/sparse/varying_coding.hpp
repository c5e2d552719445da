// How a vector of values is coded to a length that depends on them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace pith {

struct VaryingCoding {
  enum class Kind : std::uint8_t {
    lossless,  // the bytes of equal weight together, by an entropy coder
    bounded,   // multiples of about twice the bound, in as few bits as a block's largest needs
  };

  Kind kind = Kind::bounded;
  std::uint8_t level = 1;  // lossless: of the entropy coder, from 1, the fastest, to 19
  // bounded: a value is decoded with at most this error, or this part of the largest magnitude of
  // its block, whichever is less.
  float absolute = std::numeric_limits<float>::infinity();
  float relative = std::numeric_limits<float>::infinity();
  // bounded: what coding loses stays with the rank that codes, for the next call.
  bool keeps_rest = false;

  // Values that are coded together.
  constexpr std::size_t block() const { return kind == Kind::bounded ? 128 : std::size_t{1} << 16; }
  // What says how a block is coded.
  constexpr std::size_t head_bytes() const { return kind == Kind::bounded ? 1 : 16; }
  // A block that would not shrink is left as it is.
  constexpr std::size_t most_bytes(std::size_t count) const {
    return count * sizeof(float) + (count + block() - 1) / block() * head_bytes();
  }
  bool operator==(const VaryingCoding&) const = default;
};

// A vector may be coded in parts, one behind another, that are whole blocks but for the last one.

// out = the coded values, whose length is *written.
struct EncodeVaryingKernel {
  struct Args {
    VaryingCoding coding;
    const float* in;
    std::size_t count;
    std::byte* out;  // coding.most_bytes(count)
    std::size_t* written;
    float* decoded = nullptr;  // the values as they will be decoded; may be null, or `in`
  };
  static std::size_t work_bytes(const Args& args) { return 4 * args.count; }
};

// out = the values. *read becomes the length of their codes, or `malformed`.
struct DecodeVaryingKernel {
  static constexpr std::size_t malformed = ~std::size_t{0};
  struct Args {
    VaryingCoding coding;
    const std::byte* in;
    std::size_t bytes;  // at least the codes' if they are well-formed
    std::size_t count;
    float* out;
    std::size_t* read;
  };
  static std::size_t work_bytes(const Args& args) { return 4 * args.count; }
};

}  // namespace pith
