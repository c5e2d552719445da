// Authenticated encryption of a sequence of records in one direction: AES-256-GCM by OpenSSL.
//
// The nonce of a record is its number, so records that are changed, repeated, left out or moved are
// not authentic. After `records_per_key` both ends take the next key, a digest of the last one:
// no nonce comes twice, and one key encrypts no more than TLS 1.3 allows (RFC 8446, 5.5).
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/error.hpp"
#include "crypto/libcrypto.hpp"
#include "crypto/sha256.hpp"

namespace pith {

class Aead {
 public:
  using Key = Digest;
  enum class Use : int { open = 0, seal = 1 };
  static constexpr std::size_t tag_bytes = 16;
  static constexpr std::uint64_t records_per_key = std::uint64_t{1} << 24;

  Aead() = default;  // seals and opens nothing
  // Fails where libcrypto is missing. Both ends must be given the same numbers.
  static Expected<Aead> create(Use use, const Key& key, std::uint64_t per_key = records_per_key);

  // Encrypts the parts of `plain`, one after the other, to `sealed`, which takes as many bytes and
  // the tag. `beside` is authenticated only. False where OpenSSL fails: nothing more can be sealed.
  bool seal(std::span<const std::byte> beside, std::span<const iovec> plain, std::byte* sealed);
  // The reverse; `plain` has room for `sealed` without its tag. False: not authentic, so `plain`
  // holds nothing of use, and nothing more can be opened.
  bool open(std::span<const std::byte> beside, std::span<const std::byte> sealed,
            std::span<const iovec> plain);

 private:
  struct Free {
    void operator()(EVP_CIPHER_CTX* context) const { libcrypto().context_free(context); }
  };
  bool begin(std::span<const std::byte> beside);
  bool set_key();

  std::unique_ptr<EVP_CIPHER_CTX, Free> context_;
  Key key_{};
  Use use_ = Use::seal;
  std::uint64_t per_key_ = records_per_key;
  std::uint64_t records_ = 0;  // with this key
  bool failed_ = true;
};

}  // namespace pith
