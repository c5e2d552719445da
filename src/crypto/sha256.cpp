#include "crypto/sha256.hpp"

#include <openssl/crypto.h>

#include <algorithm>

namespace pith {

Sha256::Sha256() { SHA256_Init(&state_); }

void Sha256::add(std::span<const std::byte> data) {
  SHA256_Update(&state_, data.data(), data.size());
}

Digest Sha256::finish() {
  Digest digest;
  SHA256_Final(reinterpret_cast<unsigned char*>(digest.data()), &state_);
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
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace pith
