#include "transport/ucx/ucx_frames.hpp"

#include <cstring>

#include "crypto/random_bytes.hpp"
#include "crypto/sha256.hpp"

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
  if (Error error = fill_random(nonce)) return error;
  return nonce;
}

std::uint64_t ucx_token(const Secret& secret, const UcxTokenInput& input) {
  static constexpr std::string_view purpose = "pith-ucx";
  std::array<std::byte, 8 + 3 * 4 + 2 * sizeof(UcxNonce)> said;
  const std::array<std::int32_t, 3> numbers = {input.from, input.to, input.ranks};
  std::byte* at = said.data();
  const auto say = [&at](const void* data, std::size_t size) {
    std::memcpy(at, data, size);
    at += size;
  };
  say(purpose.data(), purpose.size());
  say(numbers.data(), sizeof numbers);
  say(input.from_nonce.data(), sizeof input.from_nonce);
  say(input.to_nonce.data(), sizeof input.to_nonce);
  const Digest digest = hmac_sha256(secret, said);
  std::uint64_t token = 0;
  std::memcpy(&token, digest.data(), sizeof token);
  return token;
}

}  // namespace pith
