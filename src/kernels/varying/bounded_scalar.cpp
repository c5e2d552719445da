#include <array>
#include <cstring>

#include "kernels/varying/bounded_block.hpp"
#include "kernels/varying/varying.hpp"

namespace pith::kernels::scalar {

namespace {

using Values = std::array<float, bounded_block>;
using BlockCodes = std::array<std::uint32_t, bounded_block>;

std::uint32_t code_of(int k) {
  return static_cast<std::uint32_t>(k) << 1 ^ static_cast<std::uint32_t>(k >> 31);
}
float value_of(std::uint32_t code, float step) {
  const auto k = static_cast<std::int32_t>(code >> 1 ^ (0u - (code & 1)));
  return static_cast<float>(k) * step;
}

// False: the bound cannot be kept.
bool code_block(const BoundedPlan& plan, const Values& values, BlockCodes& codes, unsigned& bits) {
  std::uint32_t all = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    codes[i] = code_of(static_cast<int>(std::nearbyint(values[i] * plan.factor)));
    all |= codes[i];
    if (!(std::fabs(values[i] - value_of(codes[i], plan.step)) <= plan.bound)) return false;
  }
  bits = static_cast<unsigned>(std::bit_width(all));
  return true;
}

void put_planes(const BlockCodes& codes, unsigned bits, std::byte* out) {
  for_each_plane(bits, [&](int shift, unsigned width) {
    const std::size_t bytes = plane_bytes(width);
    for (std::size_t j = 0; j < bytes; ++j) {
      std::uint32_t byte = 0;
      for (std::size_t k = 0; k < 8 / width; ++k) {
        byte |= (codes[k * bytes + j] >> shift & ((1u << width) - 1)) << (k * width);
      }
      out[j] = static_cast<std::byte>(byte);
    }
    out += bytes;
  });
}

void get_planes(const std::byte* in, unsigned bits, BlockCodes& codes) {
  codes.fill(0);
  for_each_plane(bits, [&](int shift, unsigned width) {
    const std::size_t bytes = plane_bytes(width);
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const auto byte = static_cast<std::uint32_t>(in[i % bytes]);
      codes[i] |= (byte >> (i / bytes * width) & ((1u << width) - 1)) << shift;
    }
    in += bytes;
  });
}

std::size_t leave_as_is(const float* values, std::size_t n, std::byte* out) {
  out[0] = static_cast<std::byte>(BoundedHead::as_is);
  std::memcpy(out + 1, values, n * sizeof(float));
  return 1 + n * sizeof(float);
}

// Codes n values, with zeros behind them, and replaces them by what they are decoded to. The bytes
// that this takes.
std::size_t encode_block(const VaryingCoding& coding, Values& values, std::size_t n,
                         std::byte* out) {
  std::uint32_t largest = 0;
  for (const float value : values) {
    largest = std::max(largest, std::bit_cast<std::uint32_t>(value) & 0x7fffffffu);
  }
  const BoundedPlan plan = plan_of(coding, largest);
  if (plan.way == BoundedPlan::Way::zeros) {
    out[0] = static_cast<std::byte>(BoundedHead::zeros);
    values.fill(0);
    return 1;
  }
  BlockCodes codes;
  unsigned bits = 0;
  const bool keeps_bound =
      plan.way == BoundedPlan::Way::steps && code_block(plan, values, codes, bits);
  const std::size_t bytes = coded_bytes(coding, bits);
  if (!keeps_bound || bytes > n * sizeof(float)) return leave_as_is(values.data(), n, out);
  *out++ = static_cast<std::byte>(bits);
  if (sends_step(coding)) {
    std::memcpy(out, &plan.step, sizeof plan.step);
    out += sizeof plan.step;
  }
  put_planes(codes, bits, out);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = value_of(codes[i], plan.step);
  return bytes;
}

// The bytes read, of `left`, or `malformed`.
std::size_t decode_block(const VaryingCoding& coding, const std::byte* in, std::size_t left,
                         std::size_t n, Values& values) {
  constexpr std::size_t malformed = DecodeVaryingKernel::malformed;
  if (left == 0) return malformed;
  const auto head = static_cast<std::uint8_t>(in[0]);
  values.fill(0);
  if (head == BoundedHead::zeros) return 1;
  if (head == BoundedHead::as_is) {
    if (left - 1 < n * sizeof(float)) return malformed;
    std::memcpy(values.data(), in + 1, n * sizeof(float));
    return 1 + n * sizeof(float);
  }
  const std::size_t bytes = coded_bytes(coding, head);
  if (head > BoundedHead::most_bits || left < bytes) return malformed;
  float step = step_of(coding.absolute);
  if (sends_step(coding)) std::memcpy(&step, in + 1, sizeof step);
  BlockCodes codes;
  get_planes(in + bytes - plane_bytes(head), head, codes);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = value_of(codes[i], step);
  return bytes;
}

}  // namespace

void encode_bounded(const EncodeVaryingKernel::Args& args) {
  std::byte* out = args.out;
  for (std::size_t begin = 0; begin < args.count; begin += bounded_block) {
    const std::size_t n = std::min(bounded_block, args.count - begin);
    Values values{};
    std::copy_n(args.in + begin, n, values.begin());
    out += encode_block(args.coding, values, n, out);
    if (args.decoded) std::copy_n(values.begin(), n, args.decoded + begin);
  }
  *args.written = static_cast<std::size_t>(out - args.out);
}

void decode_bounded(const DecodeVaryingKernel::Args& args) {
  std::size_t at = 0;
  *args.read = DecodeVaryingKernel::malformed;
  for (std::size_t begin = 0; begin < args.count; begin += bounded_block) {
    const std::size_t n = std::min(bounded_block, args.count - begin);
    Values values;
    const std::size_t bytes = decode_block(args.coding, args.in + at, args.bytes - at, n, values);
    if (bytes == DecodeVaryingKernel::malformed) return;
    std::copy_n(values.begin(), n, args.out + begin);
    at += bytes;
  }
  *args.read = at;
}

}  // namespace pith::kernels::scalar
