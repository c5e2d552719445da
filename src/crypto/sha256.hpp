// SHA-256 by OpenSSL, and HMAC over it (RFC 2104), for authenticating connections.
//
// Links OpenSSL's low-level SHA-256 statically: five of its objects, no global state and nothing at
// exit. OpenSSL's own HMAC would add 4 MB, and the process may have another libcrypto.
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
  // To be called once, after the last add().
  Digest finish();

 private:
  SHA256_CTX state_;
};

Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message);

// Constant time, so that a digest cannot be guessed byte by byte.
bool same_digest(const Digest& a, const Digest& b);

}  // namespace pith
