// Partitions and thresholds of ExDyna and MiCRO: arithmetic on counts.
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <span>
#include <vector>

#include "compress/compressor.hpp"
#include "tests/catch.hpp"

namespace pith::test {

namespace {

using Kind = ExdynaPartition::Kind;

// Partitions in order that cover everything; they cannot overlap then.
bool covers(const ExdynaPartition& cut, std::size_t count) {
  std::size_t at = 0;
  for (std::size_t p = 0; p < cut.ranks(); ++p) {
    if (cut.begin(p) != at) return false;
    at += cut.size(p);
  }
  return at == count;
}

// A step in which `elected` decides how many of each block are elected.
template <class Elected>
void follow(ExdynaPartition& cut, Kind kind, Elected elected) {
  std::vector<std::uint32_t> by_block(kind == Kind::prefix ? cut.blocks() : 0);
  std::vector<std::uint64_t> by_partition(cut.ranks());
  for (std::size_t p = 0; p < cut.ranks(); ++p) {
    for (std::size_t i = cut.begin(p); i < cut.begin(p) + cut.size(p); ++i) {
      if (!elected(i)) continue;
      ++by_partition[p];
      if (kind == Kind::prefix) ++by_block[cut.block_of(static_cast<std::uint32_t>(i))];
    }
  }
  cut.follow(by_partition, by_block);
}

double imbalance(const ExdynaPartition& cut, std::size_t hot) {
  std::size_t most = 0;
  for (std::size_t p = 0; p < cut.ranks(); ++p) {
    const std::size_t end = std::min(cut.begin(p) + cut.size(p), hot);
    most = std::max(most, end > cut.begin(p) ? end - cut.begin(p) : 0);
  }
  return static_cast<double>(most * cut.ranks()) / static_cast<double>(hot);
}

}  // namespace

TEST_CASE("partitions are disjoint and cover the vector", "[exdyna]") {
  for (const Kind kind : {Kind::neighbour, Kind::prefix, Kind::slices}) {
    for (const int ranks : {1, 2, 3, 5, 7, 8, 16, 100, 300, 1024}) {
      for (const std::size_t count : {1, 2, 31, 100, 1023, 1024, 32767, 32768, 100003}) {
        ExdynaPartition cut;
        cut.fit(kind, count, ranks);
        INFO(ranks << " ranks, " << count << " elements");
        REQUIRE(covers(cut, count));
        for (std::size_t step = 0; step < 8; ++step) {
          follow(cut, kind, [&](std::size_t i) { return (i * i + step) % 97 < i * 90 / count; });
          REQUIRE(covers(cut, count));
        }
      }
    }
  }
}

TEST_CASE("blocks beyond 256 ranks", "[exdyna]") {
  ExdynaPartition cut;
  cut.fit(Kind::neighbour, 1 << 20, 256);
  CHECK(cut.blocks() == 1024);
  cut.fit(Kind::neighbour, 1 << 20, 257);
  CHECK(cut.blocks() == 1028);
  cut.fit(Kind::prefix, 1 << 20, 1024);
  CHECK(cut.blocks() == 4096);
}

TEST_CASE("the prefix cut balances at once what the trade cannot", "[exdyna]") {
  constexpr std::size_t count = 1 << 17;
  constexpr std::size_t hot = count / 4;  // all is elected in the first quarter
  const auto elected = [](std::size_t i) { return i < hot && i % 8 == 0; };
  ExdynaPartition prefix;
  prefix.fit(Kind::prefix, count, 8);
  follow(prefix, Kind::prefix, elected);
  CHECK(imbalance(prefix, hot) < 1.05);
  CHECK(prefix.share(0) == Approx(0.125).margin(0.01));

  ExdynaPartition trade;
  trade.fit(Kind::neighbour, count, 8);
  for (int step = 0; step < 500; ++step) follow(trade, Kind::neighbour, elected);
  CHECK(imbalance(trade, hot) > 1.5);
}

TEST_CASE("the partition's state comes back", "[exdyna]") {
  for (const Kind kind : {Kind::neighbour, Kind::prefix}) {
    ExdynaPartition cut;
    cut.fit(kind, 100000, 6);
    for (int step = 0; step < 5; ++step) {
      follow(cut, kind, [](std::size_t i) { return i % 50 < i / 4000; });
    }
    ExdynaPartition copy;
    copy.fit(kind, 100000, 6);
    copy.restore(cut.state());
    for (std::size_t p = 0; p < 6; ++p) {
      CHECK(copy.begin(p) == cut.begin(p));
      CHECK(copy.share(p) == cut.share(p));
    }
    ExdynaPartition fewer;  // ranks: the blocks are known, the partitions begin anew
    fewer.fit(kind, 100000, 5);
    fewer.restore(cut.state());
    CHECK(covers(fewer, 100000));
  }
}

namespace {

using Histogram = std::vector<std::uint64_t>;

Histogram histogram_of(const std::vector<float>& values) {
  Histogram counts(MagnitudeHistogram::bins);
  for (const float value : values) {
    ++counts[std::bit_cast<std::uint32_t>(std::fabs(value)) >> MagnitudeHistogram::shift];
  }
  return counts;
}

void measure(ExdynaThreshold& threshold, const std::vector<float>& values, std::size_t k) {
  const Histogram counts = histogram_of(values);
  threshold.measure(std::span<const std::uint64_t, MagnitudeHistogram::bins>(counts), k);
}

std::size_t passing(const ExdynaThreshold& threshold, const std::vector<float>& values) {
  return static_cast<std::size_t>(std::count_if(values.begin(), values.end(), [&](float value) {
    return std::fabs(value) >= threshold.elects();
  }));
}

// Magnitudes whose k-th is scale * 1000 / k.
std::vector<float> reciprocals(float scale) {
  std::vector<float> values;
  for (int i = 1; i <= 10000; ++i) {
    values.push_back(scale * 1000 / static_cast<float>(i) * (i % 2 == 0 ? 1.0f : -1.0f));
  }
  return values;
}

}  // namespace

TEST_CASE("the quantile is measured first", "[exdyna]") {
  ExdynaThreshold threshold;
  threshold.begin(Rule::quantile);
  CHECK_FALSE(threshold.known());
  for (const float scale : {1e-20f, 1e-3f, 1.0f, 1e20f}) {
    measure(threshold, reciprocals(scale), 500);
    CHECK(passing(threshold, reciprocals(scale)) == Approx(500).margin(10));
  }
  // Fewer than k that are not zero: all of them, and no zero.
  std::vector<float> few(1000);
  few[7] = 1e-30f;
  few[8] = -3;
  measure(threshold, few, 10);
  CHECK(passing(threshold, few) == 2);
  measure(threshold, std::vector<float>(1000), 10);
  CHECK(passing(threshold, std::vector<float>(1000)) == 0);
}

TEST_CASE("the quantile rule follows magnitudes that grow", "[exdyna]") {
  ExdynaThreshold threshold;
  threshold.begin(Rule::quantile);
  for (int step = 0; step < 60; ++step) {
    const std::vector<float> values = reciprocals(std::pow(1.02f, static_cast<float>(step)));
    if (!threshold.known()) measure(threshold, values, 500);
    if (step > 30) CHECK(passing(threshold, values) == Approx(500).margin(15));
    MagnitudeLevels levels;
    std::vector<float> survivors;
    std::copy_if(values.begin(), values.end(), std::back_inserter(survivors),
                 [&](float value) { return std::fabs(value) >= threshold.counts(); });
    levels.add(survivors, threshold.elects());
    const std::size_t above = std::accumulate(levels.counts.begin() + MagnitudeLevels::elected,
                                              levels.counts.end(), std::size_t{0});
    CHECK(above == passing(threshold, values));
    threshold.follow(above, levels, 500);
    if (step >= 2) CHECK(threshold.known());
  }
}

TEST_CASE("a threshold that has lost its quantile is measured again", "[exdyna]") {
  for (const float change : {1e-3f, 1e3f}) {
    ExdynaThreshold threshold;
    threshold.begin(Rule::quantile);
    measure(threshold, reciprocals(1), 500);
    measure(threshold, reciprocals(1), 500);
    std::vector<float> survivors;
    for (const float value : reciprocals(change)) {
      if (std::fabs(value) >= threshold.counts()) survivors.push_back(value);
    }
    MagnitudeLevels levels;
    levels.add(survivors, threshold.elects());
    threshold.follow(0, levels, 500);
    CHECK_FALSE(threshold.known());
  }
}

TEST_CASE("owners together elect less than three times the target", "[exdyna]") {
  const Spec spec = *Spec::parse("exdyna:density=0.01");
  ExdynaControl control;
  for (const int ranks : {1, 2, 8, 64}) {
    control.begin(spec, 1 << 20, ranks);
    std::size_t all = 0;
    for (std::size_t p = 0; p < static_cast<std::size_t>(ranks); ++p) all += control.most(p);
    CHECK(all < 3 * control.k());
  }
  control.begin(*Spec::parse("exdyna:rule=released"), 1 << 20, 8);
  CHECK(control.most(0) > 1 << 20);
}

}  // namespace pith::test
