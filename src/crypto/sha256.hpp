// SHA-256 by OpenSSL, and HMAC over it (RFC 2104), for proofs of a few bytes when ranks meet.
//
// The compression function alone, which OpenSSL calls low-level, linked statically: it brings five
// of its objects into the library, no global state and nothing at exit. OpenSSL's own HMAC would
// bring 4 MB, and the process may have another libcrypto.
#pragma once

#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#include <array>
#include <cstddef>
#include <span>

namespace pith {

using Digest = std::array<std::byte, 32>;

class Sha256 {
 public:
  Sha256();
  void add(std::span<const std::byte> data);
  // Once; nothing is added afterwards.
  Digest finish();

 private:
  SHA256_CTX state_;
};

Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message);

// Takes as long wherever the first difference is: a proof cannot be guessed byte by byte.
bool same_digest(const Digest& a, const Digest& b);

}  // namespace pith
