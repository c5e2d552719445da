// Published answers: FIPS 180-4's examples by NIST, RFC 4231 for HMAC.
#include "crypto/sha256.hpp"

#include <algorithm>
#include <string>
#include <string_view>

#include "crypto/random_bytes.hpp"
#include "tests/catch.hpp"
#include "tests/core/hex.hpp"

namespace pith::test {

namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string sha256(std::string_view text) {
  Sha256 sum;
  sum.add(bytes_of(text));
  return hex(sum.finish());
}

std::string hmac(std::string_view key, std::string_view message) {
  return hex(hmac_sha256(bytes_of(key), bytes_of(message)));
}

}  // namespace

TEST_CASE("SHA-256 gives the standard's answers", "[sha256]") {
  CHECK(sha256("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(sha256(std::string(1'000'000, 'a')) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("SHA-256 does not care in which parts it gets its text", "[sha256]") {
  const std::string text(200, 'x');
  for (std::size_t length = 0; length <= text.size(); ++length) {
    const std::string_view all = std::string_view(text).substr(0, length);
    for (const std::size_t part : {1u, 3u, 55u, 64u, 65u}) {
      Sha256 sum;
      for (std::size_t at = 0; at < length; at += part) sum.add(bytes_of(all.substr(at, part)));
      REQUIRE(hex(sum.finish()) == sha256(all));
    }
  }
}

TEST_CASE("HMAC-SHA256 gives the standard's answers", "[sha256]") {
  CHECK(hmac(std::string(20, '\x0b'), "Hi There") ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(hmac("Jefe", "what do ya want for nothing?") ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(hmac(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First") ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST_CASE("digests are the same only where every byte is", "[sha256]") {
  const Digest digest = hmac_sha256(bytes_of("key"), bytes_of("message"));
  CHECK(same_digest(digest, digest));
  for (std::size_t i = 0; i < digest.size(); ++i) {
    Digest other = digest;
    other[i] ^= std::byte{1};
    CHECK_FALSE(same_digest(digest, other));
  }
}

TEST_CASE("random bytes fill all that was asked for, and differ", "[sha256]") {
  std::array<std::byte, 1000> one{};
  std::array<std::byte, 1000> other{};
  REQUIRE_FALSE(fill_random(one));
  REQUIRE_FALSE(fill_random(other));
  CHECK(one != other);
  CHECK(std::any_of(one.end() - 32, one.end(), [](std::byte byte) { return byte != std::byte{}; }));
}

}  // namespace pith::test
