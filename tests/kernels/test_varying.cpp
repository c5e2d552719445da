// Values coded to a length that depends on them: SIMD beside the scalar twins, and what each coding
// promises.
#include "kernels/varying/bounded_block.hpp"
#include "kernels/varying/varying.hpp"
#include "sparse_support.hpp"

using namespace pith;
using namespace pith::kernels;
using namespace pith::kernels::test;

namespace {

using ByteVector = std::vector<std::byte>;
using Floats = std::vector<float>;
constexpr std::byte untouched{0x5a};
constexpr std::size_t malformed = DecodeVaryingKernel::malformed;
constexpr float none = std::numeric_limits<float>::infinity();

VaryingCoding bounded(float absolute, float relative) {
  return {.kind = VaryingCoding::Kind::bounded, .absolute = absolute, .relative = relative};
}
const VaryingCoding lossless = {.kind = VaryingCoding::Kind::lossless};

const std::vector<VaryingCoding>& all_bounds() {
  static const std::vector<VaryingCoding> all = {
      bounded(none, 1e-3f), bounded(none, 0.3f),    bounded(0.01f, none), bounded(1e-5f, none),
      bounded(none, none),  bounded(0.1f, 0.01f),   bounded(none, 1e-6f), bounded(1e-38f, none),
      bounded(3e38f, none), bounded(none, 1.0f / 3)};
  return all;
}

ByteVector encoded(const VaryingCoding& coding, const Floats& values, Floats* decoded = nullptr) {
  ByteVector out(coding.most_bytes(values.size()) + 1, untouched);
  std::size_t written = 0;
  if (decoded) decoded->resize(values.size());
  encode_varying({coding, values.data(), values.size(), out.data(), &written,
                  decoded ? decoded->data() : nullptr});
  REQUIRE(written < out.size());
  REQUIRE(out.back() == untouched);
  out.resize(written);
  return out;
}

// Empty if the bytes are malformed. They lie at the end of their memory.
Floats decoded(const VaryingCoding& coding, const ByteVector& coded, std::size_t count,
               std::size_t* read = nullptr) {
  Floats values(count);
  std::size_t length = 0;
  decode_varying({coding, coded.data(), coded.size(), count, values.data(), &length});
  if (read) *read = length;
  if (length == malformed) values.clear();
  return values;
}

template <class Body>
void for_each_vector(const Body& body) {
  for (const Kind kind : all_kinds) {
    for (const std::size_t count : {0, 1, 15, 16, 17, 127, 128, 300, 1024, 9001}) {
      INFO("values " << int(kind) << " count " << count);
      body(floats_of(kind, count, 1));
    }
  }
}

}  // namespace

TEST_CASE("bounded values are coded and read as the twin does") {
  for_each_target([] {
    for (const VaryingCoding& coding : all_bounds()) {
      for_each_vector([&](const Floats& values) {
        const std::size_t n = values.size();
        ByteVector plain(coding.most_bytes(n)), fast = plain;
        Floats plain_decoded(n), fast_decoded(n);
        std::size_t plain_bytes = 0, fast_bytes = 0;
        scalar::encode_bounded(
            {coding, values.data(), n, plain.data(), &plain_bytes, plain_decoded.data()});
        encode_bounded({coding, values.data(), n, fast.data(), &fast_bytes, fast_decoded.data()});
        REQUIRE(plain_bytes == fast_bytes);
        plain.resize(plain_bytes);
        fast.resize(fast_bytes);
        REQUIRE(plain == fast);
        REQUIRE(same(plain_decoded, fast_decoded));
        Floats plain_back(n), fast_back(n);
        std::size_t plain_read = 0, fast_read = 0;
        scalar::decode_bounded(
            {coding, plain.data(), plain.size(), n, plain_back.data(), &plain_read});
        decode_bounded({coding, plain.data(), plain.size(), n, fast_back.data(), &fast_read});
        REQUIRE(plain_read == plain_bytes);
        REQUIRE(fast_read == plain_bytes);
        REQUIRE(same(plain_back, plain_decoded));
        REQUIRE(same(fast_back, plain_decoded));
      });
    }
  });
}

TEST_CASE("no error exceeds its bound") {
  for (const VaryingCoding& coding : all_bounds()) {
    for_each_vector([&](const Floats& values) {
      const Floats back = decoded(coding, encoded(coding, values), values.size());
      REQUIRE(back.size() == values.size());
      for (std::size_t begin = 0; begin < values.size(); begin += 128) {
        const std::size_t end = std::min<std::size_t>(begin + 128, values.size());
        float largest = 0;
        for (std::size_t i = begin; i < end; ++i) {
          largest = std::isfinite(values[i]) ? std::max(largest, std::fabs(values[i])) : none;
        }
        const float bound = std::min(coding.absolute, coding.relative * largest);
        for (std::size_t i = begin; i < end; ++i) {
          const bool is_same = back[i] == values[i] || std::isnan(values[i]);
          REQUIRE((is_same || std::fabs(double{back[i]} - double{values[i]}) <= double{bound}));
        }
      }
    });
  }
}

TEST_CASE("blocks take as many bits as they need, and none if nothing is beyond the bound") {
  const VaryingCoding coding = bounded(0.5f, none);
  Floats values(4 * 128);
  values[5] = 0.5f;        // a block of zeros
  values[128] = -1;        // one step down: code 1
  values[256] = 100;       // 100 steps: code 200
  values[3 * 128] = 1e9f;  // too many
  const ByteVector coded = encoded(coding, values);
  CHECK(coded.size() == 1 + (1 + 16) + (1 + 8 * 16) + (1 + 4 * 128));
  const Floats back = decoded(coding, coded, values.size());
  CHECK(back[5] == 0);
  CHECK(back[128] == -0.99609375f);
  CHECK(back[3 * 128] == 1e9f);
}

TEST_CASE("nothing is lost without loss, whatever the values are") {
  const auto check = [](const Floats& values) {
    Floats told;
    const ByteVector coded = encoded(lossless, values, &told);
    const Floats back = decoded(lossless, coded, values.size());
    REQUIRE(back.size() == values.size());
    const std::size_t bytes = values.size() * sizeof(float);
    REQUIRE((bytes == 0 || std::memcmp(back.data(), values.data(), bytes) == 0));
    REQUIRE((bytes == 0 || std::memcmp(told.data(), values.data(), bytes) == 0));
    return coded.size();
  };
  for_each_vector(check);
  const Floats normal = floats_of(Kind::normal, 200000, 1);
  CHECK(check(normal) < 36 * 20000);  // exponents shrink
  CHECK(check(Floats(200000, 1.5f)) < 1000);
  Floats random(70000);
  std::mt19937 bits(1);
  for (float& value : random) value = std::bit_cast<float>(static_cast<std::uint32_t>(bits()));
  CHECK(check(random) == 4 * 70000 + 2 * 16);  // and what does not is left as it is
}

TEST_CASE("bytes that are cut off, changed or invented are read safely") {
  std::mt19937_64 random(5);
  std::vector<VaryingCoding> codings = all_bounds();
  codings.push_back(lossless);
  for (const VaryingCoding& coding : codings) {
    constexpr std::size_t count = 700;
    const ByteVector right = encoded(coding, floats_of(Kind::normal, count, 2));
    std::size_t read = 0;
    for (std::size_t n = 0; n < right.size(); n += 1 + n / 16) {
      decoded(coding, ByteVector(right.begin(), right.begin() + std::ptrdiff_t(n)), count, &read);
      CHECK(read == malformed);
    }
    for (int turn = 0; turn < 300; ++turn) {
      ByteVector wrong = right;
      for (int k = 0; k < 1 + turn % 7; ++k) {
        wrong[random() % (turn % 2 == 0 ? wrong.size() : std::min<std::size_t>(wrong.size(), 16))] =
            static_cast<std::byte>(random());
      }
      decoded(coding, wrong, count, &read);
      CHECK((read == malformed || read <= wrong.size()));
      for_each_target([&] {
        if (coding.kind == VaryingCoding::Kind::lossless) return;
        Floats plain(count), fast(count);
        std::size_t plain_read = 0, fast_read = 0;
        scalar::decode_bounded(
            {coding, wrong.data(), wrong.size(), count, plain.data(), &plain_read});
        decode_bounded({coding, wrong.data(), wrong.size(), count, fast.data(), &fast_read});
        CHECK(plain_read == fast_read);
        if (plain_read != malformed) CHECK(same(plain, fast));
      });
    }
  }
}
