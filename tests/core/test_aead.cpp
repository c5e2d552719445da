// Published answers of AES-256-GCM ("The Galois/Counter Mode of Operation", McGrew and Viega, test
// cases 13 and 14), those of another implementation (Python's cryptography 48), and what is
// refused.
#include "crypto/aead.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "tests/catch.hpp"
#include "tests/core/hex.hpp"

namespace pith::test {

namespace {

using Bytes = std::vector<std::byte>;

Bytes bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

Aead make(Aead::Use use, std::uint64_t per_key = Aead::records_per_key) {
  Expected<Aead> made = Aead::create(use, Aead::Key{}, per_key);
  REQUIRE(made);
  return std::move(*made);
}

// In parts that are cut at `cut`.
std::array<iovec, 2> parts_of(Bytes& bytes, std::size_t cut) {
  cut = std::min(cut, bytes.size());
  return {iovec{bytes.data(), cut}, iovec{bytes.data() + cut, bytes.size() - cut}};
}

Bytes seal(Aead& aead, std::string_view beside, Bytes plain, std::size_t cut = 5) {
  Bytes sealed(plain.size() + Aead::tag_bytes);
  REQUIRE(aead.seal(bytes_of(beside), parts_of(plain, cut), sealed.data()));
  return sealed;
}

bool opens(Aead& aead, std::string_view beside, const Bytes& sealed, std::string_view expected) {
  Bytes plain(sealed.size() - Aead::tag_bytes);
  return aead.open(bytes_of(beside), sealed, parts_of(plain, 3)) && plain == bytes_of(expected);
}

}  // namespace

TEST_CASE("AES-256-GCM gives the published answers", "[aead]") {
  Aead empty = make(Aead::Use::seal);
  CHECK(hex(seal(empty, "", {})) == "530f8afbc74536b9a963b4f1c4cb738b");
  for (std::size_t cut = 0; cut <= 16; ++cut) {
    Aead aead = make(Aead::Use::seal);
    CHECK(hex(seal(aead, "", Bytes(16), cut)) ==
          "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919");
  }
}

TEST_CASE("the nonce is the record's number, and the key has an end", "[aead]") {
  Aead sealing = make(Aead::Use::seal, 2);
  seal(sealing, "", {});
  CHECK(hex(seal(sealing, "beside", bytes_of("second record"))) ==
        "d5edc0550107e355648fe2113208d908147d40000350c07da663ce9e36");
  CHECK(hex(seal(sealing, "beside", bytes_of("after the first key"))) ==
        "6005cc07c5673b5ebfcfef2a389655ff47e155987aebc590cfe7449e9a579b3aebadf9");
}

TEST_CASE("records are opened in their order, over the change of a key", "[aead]") {
  Aead sealing = make(Aead::Use::seal, 3);
  Aead opening = make(Aead::Use::open, 3);
  for (int record = 0; record < 10; ++record) {
    const std::string text = "record " + std::to_string(record);
    const Bytes sealed = seal(sealing, "beside", bytes_of(text));
    CHECK(opens(opening, "beside", sealed, text));
  }
}

TEST_CASE("a record is opened only as it was sealed", "[aead]") {
  Aead sealing = make(Aead::Use::seal);
  const Bytes first = seal(sealing, "beside", bytes_of("first"));
  const Bytes second = seal(sealing, "beside", bytes_of("second"));
  for (std::size_t bit = 0; bit < 8 * first.size(); ++bit) {
    Aead opening = make(Aead::Use::open);
    Bytes changed = first;
    changed[bit / 8] ^= std::byte{1} << (bit % 8);
    CHECK_FALSE(opens(opening, "beside", changed, "first"));
    CHECK_FALSE(opens(opening, "beside", first, "first"));  // nothing more is opened
  }
  Aead other_beside = make(Aead::Use::open);
  CHECK_FALSE(opens(other_beside, "besides", first, "first"));
  Aead left_out = make(Aead::Use::open);
  CHECK_FALSE(opens(left_out, "beside", second, "second"));
  Aead repeated = make(Aead::Use::open);
  CHECK(opens(repeated, "beside", first, "first"));
  CHECK_FALSE(opens(repeated, "beside", first, "first"));
  Aead::Key key{};
  key[31] = std::byte{1};
  Expected<Aead> other_key = Aead::create(Aead::Use::open, key);
  REQUIRE(other_key);
  CHECK_FALSE(opens(*other_key, "beside", first, "first"));
  Aead short_one = make(Aead::Use::open);
  CHECK_FALSE(short_one.open({}, Bytes(Aead::tag_bytes - 1), {}));
}

TEST_CASE("without libcrypto nothing is encrypted, and the error says why",
          "[.][without-libcrypto]") {
  const Error error = Aead::create(Aead::Use::seal, Aead::Key{}).error();
  REQUIRE(error);
  const std::string text = error.message();
  CHECK(text.find("libcrypto cannot be loaded") != std::string::npos);
  for (const char* name : {"libcrypto.so.3", "libcrypto.so.1.1"}) {
    CHECK(text.find(name) != std::string::npos);
  }
}

}  // namespace pith::test
