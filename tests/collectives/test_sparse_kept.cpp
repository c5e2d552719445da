// What of the sums spardl and ok-topk keep, and what it costs. The rules for all schemes are in
// test_schemes.cpp.
#include <algorithm>
#include <cmath>
#include <random>

#include "collectives/sparse/topk_cost.hpp"
#include "collectives/sparse/whole/kept_sums.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/sparse_program.hpp"

namespace pith::test {

namespace {

// How many of all shares' magnitudes the threshold keeps.
std::size_t kept_by_threshold(const std::vector<std::vector<float>>& shares, std::size_t k) {
  std::vector<ShareSummary> summaries;
  for (const std::vector<float>& share : shares) {
    std::vector<std::uint32_t> bits(share.size());
    std::ranges::transform(share, bits.begin(),
                           [](float one) { return std::bit_cast<std::uint32_t>(one); });
    summaries.push_back(summary_of(bits, k));
  }
  const auto threshold = std::bit_cast<float>(threshold_of(summaries, k));
  std::size_t kept = 0;
  for (const std::vector<float>& share : shares) {
    kept += static_cast<std::size_t>(
        std::ranges::count_if(share, [=](float one) { return one >= threshold; }));
  }
  return kept;
}

}  // namespace

// Laws of magnitudes with tails of all kinds, in shares of very different sizes.
TEST_CASE("a common threshold keeps about k sums", "[sparse][kept]") {
  std::mt19937_64 random(5);
  const auto uniform = [&random] {
    return std::uniform_real_distribution<double>(1e-9, 1)(random);
  };
  const std::vector<std::function<double(double)>> laws = {
      [](double u) { return u; }, [](double u) { return -std::log(u); },
      [](double u) { return std::pow(u, -0.5); }, [](double u) { return std::pow(u, -2); }};
  for (const auto& law : laws) {
    for (const std::size_t k : {20u, 1000u, 50000u}) {
      for (const double total : {1.1, 3.0, 8.0}) {  // sums for each one kept
        std::vector<std::vector<float>> shares(8);
        for (std::size_t s = 0; s < shares.size(); ++s) {
          const double part = double(2 * s + 1) / 64 * total;
          shares[s].resize(static_cast<std::size_t>(part * double(k)));
          // The law's scale differs between shares, as that of layers does.
          for (float& one : shares[s]) one = float(law(uniform()) * double(1 + s));
        }
        const std::size_t kept = kept_by_threshold(shares, k);
        INFO(k << " of " << total << " times as many: " << kept);
        CHECK(double(kept) >= 0.97 * double(k) - 2);
        CHECK(double(kept) <= 1.03 * double(k) + 2);
      }
    }
  }
}

TEST_CASE("a common threshold where there is little to choose", "[sparse][kept]") {
  CHECK(kept_by_threshold({{1, 2}, {}, {3}}, 5) == 3);      // all of too few
  CHECK(kept_by_threshold({{1, 1}, {1, 1}, {1}}, 3) == 5);  // equal ones
  CHECK(kept_by_threshold({{}, {}, {}}, 3) == 0);
  CHECK(kept_by_threshold({{5, 4, 3}, {0, 0, 0}}, 2) == 2);
  constexpr float most = std::numeric_limits<float>::max();
  CHECK(kept_by_threshold({{most, most / 2}, {1, 2}}, 1) == 1);
}

TEST_CASE("the result has k elements, however many ranks elect", "[sparse][kept]") {
  for (const char* scheme : {"spardl", "ok-topk"}) {
    SparseCase c = one_tensor(std::string(scheme) + ":density=0.01,bypass=never", 9, 100000);
    SparseProgram program(c);
    World world(world_of(c));
    for (std::uint64_t step = 0; step < 3; ++step) {
      program.draw(step);
      REQUIRE(program.step(world) == "");
      const CompressorStats& stats = program.compressor(0).stats;
      INFO(scheme << ": " << stats.selected_union);
      CHECK(stats.selected_local == 1000);
      CHECK(double(stats.selected_union) >= 970);
      CHECK(double(stats.selected_union) <= (std::string(scheme) == "spardl" ? 1000 : 1030));
    }
  }
}

// Otherwise elements of some shares would never be delivered.
TEST_CASE("shares take turns where fewer are kept than there are ranks", "[sparse][kept]") {
  SparseCase c = one_tensor("spardl:density=0.02,bypass=never", 5, 50);
  SparseProgram program(c);
  World world(world_of(c));
  std::vector<int> times(5);
  for (std::uint64_t step = 0; step < 50; ++step) {
    program.draw(step);
    REQUIRE(program.step(world) == "");
    const std::vector<float>& result = program.result(0, 0);
    for (std::size_t i = 0; i < result.size(); ++i) times[i / 10] += result[i] != 0 ? 1 : 0;
  }
  CHECK(*std::ranges::min_element(times) > 0);
}

TEST_CASE("fewer elements than ranks wait for no shares without elements", "[sparse][kept]") {
  SparseCase c = one_tensor("spardl:density=0.02,bypass=never", 7, 2);
  SparseProgram program(c);
  World world(world_of(c));
  for (std::uint64_t step = 0; step < 4; ++step) {
    program.draw(step);
    REQUIRE(program.step(world) == "");
    CHECK(program.compressor(0).stats.selected_union == 1);
  }
}

TEST_CASE("kept sums cost what their model says", "[sparse][kept]") {
  const std::size_t count = 1'000'000;
  for (const bool agrees : {false, true}) {
    for (const int ranks : {2, 4, 16}) {
      const std::string spec = agrees ? "ok-topk" : "spardl";
      SparseCase c = one_tensor(spec + ":density=0.02,bypass=never", ranks, count);
      SparseProgram program(c);
      TopkShape shape{.ranks = ranks, .count = count, .density = 0.02};
      for (const LinkCost& link : {LinkCost{2e-6, 1e-8, 0}, {1e-4, 1e-8, 0}, {1e-2, 1e-8, 0}}) {
        SimConfig config;
        config.link = {link.alpha, link.beta};
        World world(world_of(c, config));
        program.draw(1);
        REQUIRE(program.step(world) == "");
        const double expected = kept_sums_cost(shape, agrees ? sizeof(ShareSummary) : 0, link);
        const double off = world.elapsed_s() / expected - 1;
        INFO(describe(c) << ", alpha " << link.alpha << ": off by " << off);
        CHECK(std::fabs(off) < 0.1);
      }
    }
  }
}

// 4 k words for each rank instead of 2 (P - 1) k.
TEST_CASE("with many ranks kept sums take less time than all ranks' lists", "[sparse][kept]") {
  TopkShape shape{.ranks = 16, .count = 16'000'000, .density = 0.01};
  const LinkCost link{50e-6, 8e-9, 0};
  CHECK(kept_sums_cost(shape, 0, link) < 0.15 * topk_direct_cost(shape, link));
  CHECK(kept_sums_cost(shape, 0, link) < 0.5 * topk_split_cost(shape, link));
}

}  // namespace pith::test
