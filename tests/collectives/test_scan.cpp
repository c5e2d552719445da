// Scans: operands meet in the order of the ranks, and the bits of a result depend on the arguments
// alone, not on schedules, orders of ranks or chunks.
#include <algorithm>
#include <array>
#include <bit>
#include <string>
#include <vector>

#include "kernels/scalar.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/dense_program.hpp"

namespace pith::test {

namespace {

using Vector = std::vector<float>;
constexpr std::size_t count = 37;

// Sums of these depend on the order of the additions.
Vector input_of(int rank) {
  Vector values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t bits = random_bits(5, static_cast<std::uint64_t>(rank), i);
    values[i] = std::ldexp(static_cast<float>(bits % 1000 + 1), static_cast<int>(bits >> 32) % 24);
  }
  return values;
}

struct Setting {
  std::uint64_t seed = 0;
  std::uint64_t order = 0;
  Tuning tuning{64, 2};
  bool in_place = false;
};

struct Result {
  std::vector<Vector> of_ranks;
  std::string failure;
};

Result run_scan(const Algorithm& algorithm, int ranks, const Setting& setting) {
  Result result;
  std::vector<Vector> send;
  for (int rank = 0; rank < ranks; ++rank) send.push_back(input_of(rank));
  result.of_ranks = setting.in_place ? send : std::vector<Vector>(send.size(), Vector(count, -1));
  SimConfig config = simulator(setting.seed);
  config.ranks = ranks;
  config.seed = setting.seed + 1;
  World world(config);
  if (setting.order != 0) world.set_order(random_order(ranks, setting.order));
  auto task = [&](Call& call, int rank) {
    const auto r = static_cast<std::size_t>(rank);
    Vector& out = result.of_ranks[r];
    Vector& in = setting.in_place ? out : send[r];
    const auto bytes = [](Vector& v) {
      return Bytes{reinterpret_cast<std::byte*>(v.data()), v.size() * sizeof(float)};
    };
    CollectiveArgs args;
    args.collective = algorithm.collective;
    args.send = bytes(in);
    args.recv = bytes(out);
    args.count = count;
    args.tuning = setting.tuning;
    return algorithm.run(call, args);
  };
  for (const Error& error : run_ranks(world, task)) {
    if (error) result.failure = error.message();
  }
  if (result.failure.empty()) result.failure = world.leaks();
  return result;
}

bool same_bits(const Vector& a, const Vector& b) {
  const auto bits = [](float value) { return std::bit_cast<std::uint32_t>(value); };
  return std::ranges::equal(a, b, {}, bits, bits);
}

// Rank by rank from the left, as it stands.
std::vector<Vector> folded(int ranks, bool exclusive) {
  std::vector<Vector> results;
  Vector sum;
  for (int rank = 0; rank < ranks; ++rank) {
    const Vector mine = input_of(rank);
    if (exclusive) results.push_back(sum);
    for (std::size_t i = 0; i < count; ++i) {
      if (rank == 0) sum.push_back(mine[i]);
      if (rank > 0) sum[i] += mine[i];
    }
    if (!exclusive) results.push_back(sum);
  }
  return results;
}

const std::array settings{Setting{1, 0, {64, 1}, false},  Setting{2, 0, {64, 3}, true},
                          Setting{3, 11, {16, 4}, false}, Setting{4, 12, {4096, 2}, true},
                          Setting{5, 13, {32, 2}, false}, Setting{6, 0, {1024, 1}, true}};

}  // namespace

TEST_CASE("a chain adds from rank 0 up, whatever the schedule", "[collectives][scan]") {
  for (const Collective collective : {Collective::scan, Collective::exscan}) {
    const bool exclusive = collective == Collective::exscan;
    const Algorithm& chain = *find_algorithm(collective, "chain");
    for (int ranks = 2; ranks <= 17; ++ranks) {
      const std::vector<Vector> expected = folded(ranks, exclusive);
      for (const Setting& setting : settings) {
        INFO(name_of(collective) << " of " << ranks << ", seed " << setting.seed);
        const Result result = run_scan(chain, ranks, setting);
        REQUIRE(result.failure == "");
        for (std::size_t r = exclusive ? 1 : 0; r < expected.size(); ++r) {
          REQUIRE(same_bits(result.of_ranks[r], expected[r]));
        }
      }
    }
  }
}

TEST_CASE("recursive doubling gives the same bits in every schedule", "[collectives][scan]") {
  for (const Collective collective : {Collective::scan, Collective::exscan}) {
    const std::size_t first = collective == Collective::exscan ? 1 : 0;
    const Algorithm& doubling = *find_algorithm(collective, "recursive_doubling");
    for (int ranks = 2; ranks <= 17; ++ranks) {
      const Result once = run_scan(doubling, ranks, settings[0]);
      REQUIRE(once.failure == "");
      for (const Setting& setting : settings) {
        INFO(name_of(collective) << " of " << ranks << ", seed " << setting.seed);
        const Result again = run_scan(doubling, ranks, setting);
        REQUIRE(again.failure == "");
        for (std::size_t r = first; r < once.of_ranks.size(); ++r) {
          REQUIRE(same_bits(again.of_ranks[r], once.of_ranks[r]));
        }
      }
    }
  }
}

TEST_CASE("an exclusive scan leaves the memory of rank 0 alone", "[collectives][scan]") {
  for (const char* name : {"chain", "recursive_doubling"}) {
    for (int ranks = 2; ranks <= 17; ++ranks) {
      for (const Setting& setting : settings) {
        INFO(name << ", " << ranks << " ranks");
        const Result result = run_scan(*find_algorithm(Collective::exscan, name), ranks, setting);
        REQUIRE(result.failure == "");
        CHECK(result.of_ranks[0] == (setting.in_place ? input_of(0) : Vector(count, -1)));
      }
    }
  }
}

}  // namespace pith::test
