// The error-bounded coding of bounded_block.hpp.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/varying/bounded.cpp"
#include <cstring>

#include "hwy/foreach_target.h"
// Highway requires this order of includes.
#include "hwy/highway.h"
#include "kernels/values-inl.hpp"
#include "kernels/varying/bounded_block.hpp"
#include "kernels/varying/varying.hpp"

HWY_BEFORE_NAMESPACE();
namespace pith::kernels::HWY_NAMESPACE {
// The least plane has 16 bytes, so that vectors of up to 16 lanes leave no rest.
#if HWY_TARGET == HWY_SCALAR || HWY_HAVE_SCALABLE

void encode_bounded_of(const EncodeVaryingKernel::Args& args) { scalar::encode_bounded(args); }
void decode_bounded_of(const DecodeVaryingKernel::Args& args) { scalar::decode_bounded(args); }

#else

using CodeBytes = hn::Rebind<std::uint8_t, Words>;

HWY_INLINE Float value_of(Word code, Float step) {
  const Word sign =
      hn::BitCast(Words(), hn::Neg(hn::BitCast(Integers(), hn::And(code, constant(1)))));
  const Integer k = hn::BitCast(Integers(), hn::Xor(hn::ShiftRight<1>(code), sign));
  return hn::Mul(hn::ConvertTo(Floats(), k), step);
}

// A block of values, its codes, and what they are decoded to.
struct CodedBlock {
  HWY_ALIGN float values[bounded_block];
  HWY_ALIGN std::uint32_t codes[bounded_block];
  HWY_ALIGN float decoded[bounded_block];
};

HWY_INLINE std::uint32_t largest_of(const float* values) {
  Integer largest = hn::Zero(Integers());
  for (std::size_t i = 0; i < bounded_block; i += hn::Lanes(Floats())) {
    largest = hn::Max(largest, magnitude(hn::LoadU(Floats(), values + i)));
  }
  return static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(Integers(), largest)));
}

// False: the bound cannot be kept.
HWY_INLINE bool code_block(const BoundedPlan& plan, const float* values, CodedBlock& block,
                           unsigned& bits) {
  const Float factor = hn::Set(Floats(), plan.factor);
  const Float step = hn::Set(Floats(), plan.step);
  const Float bound = hn::Set(Floats(), plan.bound);
  Word all = hn::Zero(Words());
  auto keeps = hn::Eq(bound, bound);
  for (std::size_t i = 0; i < bounded_block; i += hn::Lanes(Floats())) {
    const Float value = hn::LoadU(Floats(), values + i);
    const Integer k = hn::NearestInt(hn::Mul(value, factor));
    const Word code = hn::BitCast(Words(), hn::Xor(hn::ShiftLeft<1>(k), hn::ShiftRight<31>(k)));
    const Float decoded = value_of(code, step);
    keeps = hn::And(keeps, hn::Le(hn::Abs(hn::Sub(value, decoded)), bound));
    all = hn::Or(all, code);
    hn::Store(code, Words(), block.codes + i);
    hn::Store(decoded, Floats(), block.decoded + i);
  }
  HWY_ALIGN std::uint32_t lanes[hn::MaxLanes(Words())];
  hn::Store(all, Words(), lanes);
  std::uint32_t any = 0;
  for (std::size_t i = 0; i < hn::Lanes(Words()); ++i) any |= lanes[i];
  bits = static_cast<unsigned>(std::bit_width(any));
  return hn::AllTrue(Floats(), keeps);
}

// A plane of kBits bits of each code, `shift` the bits below them.
template <unsigned kBits>
HWY_INLINE void put_plane(const std::uint32_t* codes, int shift, std::byte* out) {
  constexpr std::size_t bytes = plane_bytes(kBits);
  const Word mask = constant((1u << kBits) - 1);
  for (std::size_t j = 0; j < bytes; j += hn::Lanes(Words())) {
    Word all = hn::Zero(Words());
    unrolled<8 / kBits>([&](auto k) HWY_ATTR {
      const Word code = hn::Load(Words(), codes + k.value * bytes + j);
      const Word own = hn::And(hn::ShiftRightSame(code, shift), mask);
      all = hn::Or(all, hn::ShiftLeft<static_cast<int>(k.value * kBits)>(own));
    });
    store_at(CodeBytes(), hn::DemoteTo(CodeBytes(), hn::BitCast(Integers(), all)), out, j);
  }
}
template <unsigned kBits>
HWY_INLINE void get_plane(const std::byte* in, int shift, std::uint32_t* codes) {
  constexpr std::size_t bytes = plane_bytes(kBits);
  const Word mask = constant((1u << kBits) - 1);
  unrolled<8 / kBits>([&](auto k) HWY_ATTR {
    for (std::size_t j = 0; j < bytes; j += hn::Lanes(Words())) {
      const Word all = hn::PromoteTo(Words(), load_at(CodeBytes(), in, j));
      const Word own = hn::And(hn::ShiftRight<static_cast<int>(k.value * kBits)>(all), mask);
      std::uint32_t* const to = codes + k.value * bytes + j;
      hn::Store(hn::Or(hn::Load(Words(), to), hn::ShiftLeftSame(own, shift)), Words(), to);
    }
  });
}

// Calls plane(width as a constant, shift) for each plane.
template <class Plane>
HWY_INLINE void with_planes(unsigned bits, const Plane& plane) {
  for_each_plane(bits, [&](int shift, unsigned width) HWY_ATTR {
    if (width == 8) return plane(std::integral_constant<unsigned, 8>(), shift);
    if (width == 4) return plane(std::integral_constant<unsigned, 4>(), shift);
    if (width == 2) return plane(std::integral_constant<unsigned, 2>(), shift);
    return plane(std::integral_constant<unsigned, 1>(), shift);
  });
}

std::size_t leave_as_is(const float* values, std::size_t n, std::byte* out, float* decoded) {
  out[0] = static_cast<std::byte>(BoundedHead::as_is);
  std::memcpy(out + 1, values, n * sizeof(float));
  if (decoded) std::memmove(decoded, values, n * sizeof(float));
  return 1 + n * sizeof(float);
}

// The bytes that n values take.
std::size_t encode_block(const VaryingCoding& coding, const float* values, std::size_t n,
                         std::byte* out, float* decoded) {
  CodedBlock block;
  const float* whole = values;
  if (n < bounded_block) {
    std::memcpy(block.values, values, n * sizeof(float));
    std::memset(block.values + n, 0, (bounded_block - n) * sizeof(float));
    whole = block.values;
  }
  const BoundedPlan plan = plan_of(coding, largest_of(whole));
  if (plan.way == BoundedPlan::Way::zeros) {
    out[0] = static_cast<std::byte>(BoundedHead::zeros);
    if (decoded) std::memset(decoded, 0, n * sizeof(float));
    return 1;
  }
  unsigned bits = 0;
  const bool keeps_bound =
      plan.way == BoundedPlan::Way::steps && code_block(plan, whole, block, bits);
  const std::size_t bytes = coded_bytes(coding, bits);
  if (!keeps_bound || bytes > n * sizeof(float)) return leave_as_is(values, n, out, decoded);
  *out++ = static_cast<std::byte>(bits);
  if (sends_step(coding)) {
    std::memcpy(out, &plan.step, sizeof plan.step);
    out += sizeof plan.step;
  }
  with_planes(bits, [&](auto width, int shift) HWY_ATTR {
    put_plane<width.value>(block.codes, shift, out);
    out += plane_bytes(width.value);
  });
  if (decoded) std::memcpy(decoded, block.decoded, n * sizeof(float));
  return bytes;
}

// The bytes read, of `left`, or `malformed`.
std::size_t decode_block(const VaryingCoding& coding, const std::byte* in, std::size_t left,
                         std::size_t n, float* out) {
  constexpr std::size_t malformed = DecodeVaryingKernel::malformed;
  if (left == 0) return malformed;
  const auto head = static_cast<std::uint8_t>(in[0]);
  if (head == BoundedHead::zeros) {
    std::memset(out, 0, n * sizeof(float));
    return 1;
  }
  if (head == BoundedHead::as_is) {
    if (left - 1 < n * sizeof(float)) return malformed;
    std::memcpy(out, in + 1, n * sizeof(float));
    return 1 + n * sizeof(float);
  }
  const std::size_t bytes = coded_bytes(coding, head);
  if (head > BoundedHead::most_bits || left < bytes) return malformed;
  float step = step_of(coding.absolute);
  if (sends_step(coding)) std::memcpy(&step, in + 1, sizeof step);
  CodedBlock block;
  std::memset(block.codes, 0, sizeof block.codes);
  const std::byte* planes = in + bytes - plane_bytes(head);
  with_planes(head, [&](auto width, int shift) HWY_ATTR {
    get_plane<width.value>(planes, shift, block.codes);
    planes += plane_bytes(width.value);
  });
  float* const to = n < bounded_block ? block.decoded : out;
  const Float steps = hn::Set(Floats(), step);
  for (std::size_t i = 0; i < bounded_block; i += hn::Lanes(Floats())) {
    hn::StoreU(value_of(hn::Load(Words(), block.codes + i), steps), Floats(), to + i);
  }
  if (to != out) std::memcpy(out, to, n * sizeof(float));
  return bytes;
}

void encode_bounded_of(const EncodeVaryingKernel::Args& args) {
  std::byte* out = args.out;
  for (std::size_t begin = 0; begin < args.count; begin += bounded_block) {
    const std::size_t n = std::min(bounded_block, args.count - begin);
    float* const decoded = args.decoded ? args.decoded + begin : nullptr;
    out += encode_block(args.coding, args.in + begin, n, out, decoded);
  }
  *args.written = static_cast<std::size_t>(out - args.out);
}

void decode_bounded_of(const DecodeVaryingKernel::Args& args) {
  std::size_t at = 0;
  *args.read = DecodeVaryingKernel::malformed;
  for (std::size_t begin = 0; begin < args.count; begin += bounded_block) {
    const std::size_t n = std::min(bounded_block, args.count - begin);
    const std::size_t bytes =
        decode_block(args.coding, args.in + at, args.bytes - at, n, args.out + begin);
    if (bytes == DecodeVaryingKernel::malformed) return;
    at += bytes;
  }
  *args.read = at;
}

#endif
}  // namespace pith::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pith::kernels {

HWY_EXPORT(encode_bounded_of);
HWY_EXPORT(decode_bounded_of);

void encode_bounded(const EncodeVaryingKernel::Args& args) {
  HWY_DYNAMIC_DISPATCH(encode_bounded_of)(args);
}
void decode_bounded(const DecodeVaryingKernel::Args& args) {
  HWY_DYNAMIC_DISPATCH(decode_bounded_of)(args);
}

void encode_varying(const EncodeVaryingKernel::Args& args) {
  if (args.coding.kind == VaryingCoding::Kind::bounded) return encode_bounded(args);
  encode_lossless(args);
}
void decode_varying(const DecodeVaryingKernel::Args& args) {
  if (args.coding.kind == VaryingCoding::Kind::bounded) return decode_bounded(args);
  decode_lossless(args);
}

}  // namespace pith::kernels
#endif
