#include "core/sha256.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace pith {

namespace {

// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr std::array<std::uint32_t, 64> round_constants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

std::uint32_t read_big_endian(const std::byte* at) {
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | std::to_integer<std::uint32_t>(at[i]);
  return value;
}

template <class Value>
void write_big_endian(std::byte* at, Value value) {
  for (std::size_t i = 0; i < sizeof value; ++i) {
    at[i] = static_cast<std::byte>(value >> (8 * (sizeof value - 1 - i)));
  }
}

// The sixteen words of a block, and those that follow from them.
std::array<std::uint32_t, 64> schedule(const std::byte* block) {
  std::array<std::uint32_t, 64> words;
  for (std::size_t i = 0; i < 16; ++i) words[i] = read_big_endian(block + 4 * i);
  for (std::size_t i = 16; i < words.size(); ++i) {
    const std::uint32_t near = words[i - 2];
    const std::uint32_t far = words[i - 15];
    words[i] = words[i - 16] + words[i - 7] +
               (std::rotr(far, 7) ^ std::rotr(far, 18) ^ (far >> 3)) +
               (std::rotr(near, 17) ^ std::rotr(near, 19) ^ (near >> 10));
  }
  return words;
}

}  // namespace

void Sha256::take_block(const std::byte* block) {
  const std::array<std::uint32_t, 64> words = schedule(block);
  auto [a, b, c, d, e, f, g, h] = state_;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::uint32_t choice = (e & f) ^ (~e & g);
    const std::uint32_t majority = (a & b) ^ (a & c) ^ (b & c);
    const std::uint32_t first = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                                choice + round_constants[i] + words[i];
    const std::uint32_t second = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + majority;
    h = g;
    g = f;
    f = e;
    e = d + first;
    d = c;
    c = b;
    b = a;
    a = first + second;
  }
  const std::array<std::uint32_t, 8> change = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < state_.size(); ++i) state_[i] += change[i];
}

void Sha256::add(std::span<const std::byte> data) {
  while (!data.empty()) {
    const std::size_t filled = bytes_ % block_bytes;
    const std::size_t taken = std::min(data.size(), block_bytes - filled);
    std::memcpy(rest_.data() + filled, data.data(), taken);
    bytes_ += taken;
    data = data.subspan(taken);
    if (filled + taken == block_bytes) take_block(rest_.data());
  }
}

Digest Sha256::finish() {
  const std::uint64_t bits = bytes_ * 8;
  constexpr std::array<std::byte, 1> end = {std::byte{0x80}};
  constexpr std::array<std::byte, 1> zero = {};
  add(end);
  while (bytes_ % block_bytes != block_bytes - sizeof bits) add(zero);
  std::array<std::byte, sizeof bits> length;
  write_big_endian(length.data(), bits);
  add(length);
  Digest digest;
  for (std::size_t i = 0; i < state_.size(); ++i) {
    write_big_endian(digest.data() + 4 * i, state_[i]);
  }
  return digest;
}

Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message) {
  std::array<std::byte, 64> inner_pad{};
  if (key.size() > inner_pad.size()) {
    Sha256 shortened;
    shortened.add(key);
    const Digest digest = shortened.finish();
    std::copy(digest.begin(), digest.end(), inner_pad.begin());
  } else {
    std::copy(key.begin(), key.end(), inner_pad.begin());
  }
  std::array<std::byte, 64> outer_pad = inner_pad;
  for (std::byte& byte : inner_pad) byte ^= std::byte{0x36};
  for (std::byte& byte : outer_pad) byte ^= std::byte{0x5c};
  Sha256 inner;
  inner.add(inner_pad);
  inner.add(message);
  Sha256 outer;
  outer.add(outer_pad);
  outer.add(inner.finish());
  return outer.finish();
}

bool same_digest(const Digest& a, const Digest& b) {
  // Volatile, or the compiler might leave the loop at the first difference.
  volatile unsigned char differences = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    differences = differences | std::to_integer<unsigned char>(a[i] ^ b[i]);
  }
  return differences == 0;
}

}  // namespace pith
