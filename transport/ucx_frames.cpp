#include "transport/ucx_frames.hpp"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <cstring>

namespace pith {

std::string UcxAddress::pack() const {
  return std::string(reinterpret_cast<const char*>(nonce.data()), nonce.size()) + worker;
}

Expected<UcxAddress> UcxAddress::unpack(std::string_view bytes) {
  UcxAddress address;
  if (bytes.size() <= address.nonce.size()) {
    return Error(Code::internal, "a UCX address that is too short");
  }
  std::memcpy(address.nonce.data(), bytes.data(), address.nonce.size());
  address.worker = bytes.substr(address.nonce.size());
  return address;
}

Expected<UcxNonce> fresh_ucx_nonce() {
  UcxNonce nonce{};
  if (RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()), nonce.size()) != 1) {
    return Error(Code::system, "OpenSSL has no random numbers");
  }
  return nonce;
}

Expected<std::uint64_t> ucx_token(const Secret& secret, const UcxTokenInput& input) {
  static constexpr std::string_view purpose = "pith-ucx";
  std::array<unsigned char, 8 + 3 * 4 + 2 * sizeof(UcxNonce)> said;
  const std::array<std::int32_t, 3> numbers = {input.from, input.to, input.ranks};
  unsigned char* at = said.data();
  const auto say = [&at](const void* data, std::size_t size) {
    std::memcpy(at, data, size);
    at += size;
  };
  say(purpose.data(), purpose.size());
  say(numbers.data(), sizeof numbers);
  say(input.from_nonce.data(), sizeof input.from_nonce);
  say(input.to_nonce.data(), sizeof input.to_nonce);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), said.data(), said.size(),
       digest.data(), &size);
  if (size < sizeof(std::uint64_t)) {
    return Error(Code::system, "OpenSSL computes no HMAC-SHA256");
  }
  std::uint64_t token = 0;
  std::memcpy(&token, digest.data(), sizeof token);
  return token;
}

}  // namespace pith
