// Indices as bytes: the fast coder writes what the plain one writes, the fast decoder reads it and
// accepts what the plain one accepts, and neither reads nor writes where it must not.
#include "kernels/index_code.hpp"

#include "sparse_support.hpp"

namespace pith::kernels::test {
namespace {

using Indices = std::vector<std::uint32_t>;

Bytes encoded(const Indices& indices, std::uint32_t first, std::size_t span, bool plain) {
  // Exactly as large as promised: a sanitizer sees the first byte behind.
  Bytes out(EncodeIndicesKernel::coded_bound(indices.size(), span));
  std::size_t written = 0;
  const EncodeIndicesKernel::Args args{indices.data(), indices.size(), first,
                                       span,           out.data(),     &written};
  plain ? scalar::encode_indices(args) : encode_indices(args);
  REQUIRE(written <= out.size());
  out.resize(written);
  return out;
}

struct Attempt {
  Decoded result;
  Indices indices;
};

Attempt decoded(const Bytes& coded, std::uint32_t first, std::size_t span, std::size_t capacity,
                bool plain) {
  Attempt attempt;
  constexpr std::size_t guard = 16;
  attempt.indices.assign(capacity + guard, 0xabcdef01u);
  const Bytes exact(coded.begin(), coded.end());
  const DecodeIndicesKernel::Args args{exact.data(),           exact.size(), first,          span,
                                       attempt.indices.data(), capacity,     &attempt.result};
  plain ? scalar::decode_indices(args) : decode_indices(args);
  for (std::size_t i = 0; i < guard; ++i) REQUIRE(attempt.indices[capacity + i] == 0xabcdef01u);
  return attempt;
}

void check_round_trip(const Indices& indices, std::uint32_t first, std::size_t span) {
  const Bytes plain = encoded(indices, first, span, true);
  const Bytes fast = encoded(indices, first, span, false);
  CAPTURE(span, first, indices.size());
  REQUIRE(first_difference(plain, fast) == -1);
  for (const std::size_t spare : {0, 3, 100}) {
    Attempt attempt = decoded(fast, first, span, indices.size() + spare, false);
    REQUIRE(attempt.result.valid);
    REQUIRE(attempt.result.count == indices.size());
    REQUIRE(attempt.result.bytes == fast.size());
    attempt.indices.resize(indices.size());
    REQUIRE(attempt.indices == indices);
  }
  if (!indices.empty()) {
    REQUIRE_FALSE(decoded(fast, first, span, indices.size() - 1, false).result.valid);
  }
}

TEST_CASE("codings of any span and density are the plain coder's and are read back") {
  for_each_target([] {
    for (std::size_t span = 0; span <= 200; ++span) {
      for (const double share : {0.0, 0.05, 0.3, 0.9, 1.0}) {
        check_round_trip(some_indices(17, span, share, static_cast<unsigned>(span)), 17, span);
      }
    }
    for (const std::size_t span : {65'535, 65'536, 65'537, 131'072, 300'000}) {
      for (const double share : {0.0, 0.00002, 0.0001, 0.001, 0.01, 0.1, 0.2, 0.3, 0.5, 1.0}) {
        check_round_trip(some_indices(5, span, share, 3), 5, span);
      }
    }
    const std::uint32_t last = 0xffffffffu;
    check_round_trip({last - 999, last - 1, last}, last - 999, 1000);
    check_round_trip({65'535}, 0, 65'536);
    check_round_trip({0}, 0, 65'536);
  });
}

TEST_CASE("skewed lists: one block full, one empty, one with its last element only") {
  for_each_target([] {
    Indices indices(65'536);
    std::iota(indices.begin(), indices.end(), 0u);
    indices.push_back(3 * 65'536 - 1);
    check_round_trip(indices, 0, 4 * 65'536);
    Indices cluster(700);
    std::iota(cluster.begin(), cluster.end(), 65'536u + 30'000u);
    check_round_trip(cluster, 0, 4 * 65'536);
  });
}

void check_any(const Bytes& coded, std::uint32_t first, std::size_t span, std::size_t capacity) {
  const Attempt fast = decoded(coded, first, span, capacity, false);
  const Attempt plain = decoded(coded, first, span, capacity, true);
  REQUIRE(fast.result.valid == plain.result.valid);
  if (!fast.result.valid) return;
  REQUIRE(fast.result.count == plain.result.count);
  REQUIRE(fast.result.bytes == plain.result.bytes);
  for (std::size_t i = 0; i < fast.result.count; ++i) {
    REQUIRE(fast.indices[i] == plain.indices[i]);
    REQUIRE(fast.indices[i] - first < span);
    if (i > 0) REQUIRE(fast.indices[i] > fast.indices[i - 1]);
  }
}

Bytes mutated(Bytes coded, std::mt19937_64& random) {
  const auto changes = 1 + random() % 3;
  for (std::uint64_t change = 0; change < changes && !coded.empty(); ++change) {
    // Headers are few but matter most: half of the changes hit the first bytes.
    const std::size_t at =
        random() % (random() % 2 == 0 ? std::min<std::size_t>(8, coded.size()) : coded.size());
    switch (random() % 4) {
      case 0:
        coded[at] = static_cast<std::byte>(random());
        break;
      case 1:
        coded[at] ^= std::byte{1} << (random() % 8);
        break;
      case 2:
        coded.resize(random() % (coded.size() + 1));
        break;
      default:
        coded.resize(coded.size() + random() % 20, static_cast<std::byte>(random()));
    }
  }
  return coded;
}

TEST_CASE("no bytes make the decoder read or write out of bounds, or accept what is no list") {
  std::mt19937_64 random(20);
  for (int round = 0; round < 1000; ++round) {
    const std::size_t span = round % 50 == 0 ? 65'536 + random() % 70'000 : 1 + random() % 3000;
    const double share = std::pow(10.0, -3.0 * double(random() % 1000) / 1000);
    const auto first = static_cast<std::uint32_t>(random() % 1000);
    const Indices indices = some_indices(first, span, share, static_cast<unsigned>(round));
    const Bytes coded = encoded(indices, first, span, false);
    const int mutations = span > 3000 ? 20 : 102;
    for (int i = 0; i < mutations; ++i) {
      check_any(mutated(coded, random), first, span, indices.size() + random() % 20);
    }
  }
}

TEST_CASE("random bytes under every form and count") {
  for_each_target([] {
    std::mt19937_64 random(21);
    for (std::uint32_t form = 0; form < 256; form += form == 18 ? 237 : 1) {
      for (int round = 0; round < 40; ++round) {
        const std::size_t span = 1 + random() % 400;
        const auto count = static_cast<std::uint32_t>(random() % 12);
        Bytes coded(4 + random() % 64);
        for (std::byte& byte : coded) byte = static_cast<std::byte>(random() & random());
        const std::uint32_t word = count | form << 24;
        std::memcpy(coded.data(), &word, sizeof word);
        check_any(coded, 9, span, 12);
      }
    }
  });
}

}  // namespace
}  // namespace pith::kernels::test
