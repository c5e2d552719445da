// SHA-256 (FIPS 180-4) and HMAC over it (RFC 2104), for proofs of a few bytes when ranks meet.
//
// Our own: the library is loaded into programs that bring another libcrypto along, and OpenSSL's
// goes before the globals of a process that is ending, whose connections may still be made.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace pith {

using Digest = std::array<std::byte, 32>;

class Sha256 {
 public:
  void add(std::span<const std::byte> data);
  // Once; nothing is added afterwards.
  Digest finish();

 private:
  static constexpr std::size_t block_bytes = 64;

  void take_block(const std::byte* block);

  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, block_bytes> rest_{};  // what fills no block yet
  std::uint64_t bytes_ = 0;
};

Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message);

// Takes as long wherever the first difference is: a proof cannot be guessed byte by byte.
bool same_digest(const Digest& a, const Digest& b);

}  // namespace pith
