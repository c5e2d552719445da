#include "crypto/aead.hpp"

#include <array>
#include <cstring>
#include <string_view>
#include <utility>

namespace pith {
namespace {

constexpr std::size_t nonce_bytes = 12;

unsigned char* raw(void* bytes) { return static_cast<unsigned char*>(bytes); }
const unsigned char* raw(const void* bytes) { return static_cast<const unsigned char*>(bytes); }

Aead::Key next_key(const Aead::Key& key) {
  constexpr std::string_view label = "pith next key";
  return hmac_sha256(key, std::as_bytes(std::span(label)));
}

}  // namespace

Expected<Aead> Aead::create(Use use, const Key& key, std::uint64_t per_key) {
  const Libcrypto& crypto = libcrypto();
  if (crypto.why_not) return crypto.why_not;
  Aead made;
  made.context_.reset(crypto.context_new());
  if (!made.context_) return out_of_memory();
  made.key_ = key;
  made.use_ = use;
  made.per_key_ = per_key;
  const EVP_CIPHER* const cipher = crypto.aes_256_gcm();
  if (crypto.init(made.context_.get(), cipher, nullptr, nullptr, nullptr, int(use)) != 1 ||
      !made.set_key()) {
    return Error(Code::system, "libcrypto has no AES-256-GCM");
  }
  made.failed_ = false;
  return made;
}

bool Aead::set_key() {
  return libcrypto().init(context_.get(), nullptr, nullptr, raw(key_.data()), nullptr, -1) == 1;
}

// Sets the nonce of the next record, and takes what is authenticated only.
bool Aead::begin(std::span<const std::byte> beside) {
  const Libcrypto& crypto = libcrypto();
  if (failed_) return false;
  if (records_ == per_key_) {
    key_ = next_key(key_);
    records_ = 0;
    if (!set_key()) return false;
  }
  std::array<std::byte, nonce_bytes> nonce{};
  std::memcpy(nonce.data(), &records_, sizeof records_);
  ++records_;
  int ignored = 0;
  return crypto.init(context_.get(), nullptr, nullptr, nullptr, raw(nonce.data()), -1) == 1 &&
         crypto.update(context_.get(), nullptr, &ignored, raw(beside.data()),
                       static_cast<int>(beside.size())) == 1;
}

bool Aead::seal(std::span<const std::byte> beside, std::span<const iovec> plain,
                std::byte* sealed) {
  const Libcrypto& crypto = libcrypto();
  bool good = begin(beside);
  int moved = 0;
  for (const iovec& part : plain) {
    if (part.iov_len == 0) continue;
    good = good && crypto.update(context_.get(), raw(sealed), &moved, raw(part.iov_base),
                                 static_cast<int>(part.iov_len)) == 1;
    sealed += part.iov_len;
  }
  good = good && crypto.finish(context_.get(), raw(sealed), &moved) == 1 &&
         crypto.control(context_.get(), EVP_CTRL_AEAD_GET_TAG, tag_bytes, sealed) == 1;
  failed_ = !good;
  return good;
}

bool Aead::open(std::span<const std::byte> beside, std::span<const std::byte> sealed,
                std::span<const iovec> plain) {
  const Libcrypto& crypto = libcrypto();
  if (sealed.size() < tag_bytes) return !(failed_ = true);
  bool good = begin(beside);
  const std::byte* from = sealed.data();
  int moved = 0;
  for (const iovec& part : plain) {
    if (part.iov_len == 0) continue;
    good = good && crypto.update(context_.get(), raw(part.iov_base), &moved, raw(from),
                                 static_cast<int>(part.iov_len)) == 1;
    from += part.iov_len;
  }
  std::array<std::byte, tag_bytes> tag;
  std::memcpy(tag.data(), sealed.data() + sealed.size() - tag_bytes, tag_bytes);
  std::byte beyond;  // GCM ends without a rest
  good = good &&
         crypto.control(context_.get(), EVP_CTRL_AEAD_SET_TAG, tag_bytes, tag.data()) == 1 &&
         crypto.finish(context_.get(), raw(&beyond), &moved) == 1;
  failed_ = !good;
  return good;
}

}  // namespace pith
