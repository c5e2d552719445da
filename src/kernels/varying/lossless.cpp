// float32 without loss: bytes of equal weight lie together, in four planes of a block, and an
// entropy coder takes each. Exponents of gradients are few, so that most of what can be gained is
// in the plane that has nothing else: the sign goes behind the mantissa.
//
// A block is four heads, of which each is the length of its plane, with the top bit set if the
// plane is left as it is, and the planes, that of the lowest bits first. As [Deutsch] shuffle
// filters, and ZipNN for the weights of models [Hershcovitch et al., 2024].
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <new>

#include "kernels/varying/varying.hpp"

#ifdef PITH_ZSTD
#include <zstd.h>
#endif

namespace pith::kernels {

namespace {

constexpr std::size_t block_values = VaryingCoding{.kind = VaryingCoding::Kind::lossless}.block();
constexpr std::size_t plane_count = sizeof(float);
constexpr std::uint32_t as_is = 1u << 31;
using Plane = std::array<std::byte, block_values>;
using Heads = std::array<std::uint32_t, plane_count>;

#ifdef PITH_ZSTD
// Contexts of the entropy coder, which are large, and are reused.
class Coder {
 public:
  Coder() : encoder_(ZSTD_createCCtx()), decoder_(ZSTD_createDCtx()) {
    if (!encoder_ || !decoder_) throw std::bad_alloc();
  }
  // The length, or 0 if it would not be below `room`.
  std::size_t encode(const Plane& plane, std::size_t n, int level, std::byte* out,
                     std::size_t room) {
    const std::size_t bytes = ZSTD_compressCCtx(encoder_.get(), out, room, plane.data(), n, level);
    return ZSTD_isError(bytes) != 0 || bytes >= room ? 0 : bytes;
  }
  bool decode(const std::byte* in, std::size_t bytes, std::size_t n, Plane& plane) {
    return ZSTD_decompressDCtx(decoder_.get(), plane.data(), n, in, bytes) == n;
  }

 private:
  struct Free {
    void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
    void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
  };
  std::unique_ptr<ZSTD_CCtx, Free> encoder_;
  std::unique_ptr<ZSTD_DCtx, Free> decoder_;
};
#else
// Without one all planes are left as they are, and no others can be read.
class Coder {
 public:
  std::size_t encode(const Plane&, std::size_t, int, std::byte*, std::size_t) { return 0; }
  bool decode(const std::byte*, std::size_t, std::size_t, Plane&) { return false; }
};
#endif

struct Room {
  Coder coder;
  std::array<Plane, plane_count> planes;
};

Room& room() {
  thread_local const auto own = std::make_unique<Room>();
  return *own;
}

void split(const float* values, std::size_t n, std::array<Plane, plane_count>& out) {
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t bits = std::rotl(std::bit_cast<std::uint32_t>(values[i]), 1);
    for (std::size_t k = 0; k < plane_count; ++k)
      out[k][i] = static_cast<std::byte>(bits >> (8 * k));
  }
}

void join(const std::array<Plane, plane_count>& in, std::size_t n, float* values) {
  for (std::size_t i = 0; i < n; ++i) {
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < plane_count; ++k)
      bits |= static_cast<std::uint32_t>(in[k][i]) << (8 * k);
    values[i] = std::bit_cast<float>(std::rotr(bits, 1));
  }
}

std::size_t encode_block(const float* values, std::size_t n, int level, std::byte* out) {
  Room& own = room();
  split(values, n, own.planes);
  Heads heads;
  std::size_t at = sizeof heads;
  for (std::size_t k = 0; k < plane_count; ++k) {
    std::size_t bytes = own.coder.encode(own.planes[k], n, level, out + at, n);
    heads[k] = static_cast<std::uint32_t>(bytes);
    if (bytes == 0) {
      bytes = n;
      heads[k] = static_cast<std::uint32_t>(n) | as_is;
      std::memcpy(out + at, own.planes[k].data(), n);
    }
    at += bytes;
  }
  std::memcpy(out, heads.data(), sizeof heads);
  return at;
}

// The bytes read, of `left`, or `malformed`.
std::size_t decode_block(const std::byte* in, std::size_t left, std::size_t n, float* values) {
  constexpr std::size_t malformed = DecodeVaryingKernel::malformed;
  Room& own = room();
  Heads heads;
  std::size_t at = sizeof heads;
  if (left < at) return malformed;
  std::memcpy(heads.data(), in, sizeof heads);
  for (std::size_t k = 0; k < plane_count; ++k) {
    const std::size_t bytes = heads[k] & ~as_is;
    if (bytes > left - at) return malformed;
    if ((heads[k] & as_is) != 0) {
      if (bytes != n) return malformed;
      std::memcpy(own.planes[k].data(), in + at, n);
    } else if (!own.coder.decode(in + at, bytes, n, own.planes[k])) {
      return malformed;
    }
    at += bytes;
  }
  join(own.planes, n, values);
  return at;
}

}  // namespace

void encode_lossless(const EncodeVaryingKernel::Args& args) {
  std::size_t at = 0;
  for (std::size_t begin = 0; begin < args.count; begin += block_values) {
    const std::size_t n = std::min(block_values, args.count - begin);
    at += encode_block(args.in + begin, n, args.coding.level, args.out + at);
  }
  if (args.decoded && args.decoded != args.in) {
    std::memcpy(args.decoded, args.in, args.count * sizeof(float));
  }
  *args.written = at;
}

void decode_lossless(const DecodeVaryingKernel::Args& args) {
  std::size_t at = 0;
  *args.read = DecodeVaryingKernel::malformed;
  for (std::size_t begin = 0; begin < args.count; begin += block_values) {
    const std::size_t n = std::min(block_values, args.count - begin);
    const std::size_t bytes = decode_block(args.in + at, args.bytes - at, n, args.out + begin);
    if (bytes == DecodeVaryingKernel::malformed) return;
    at += bytes;
  }
  *args.read = at;
}

}  // namespace pith::kernels
