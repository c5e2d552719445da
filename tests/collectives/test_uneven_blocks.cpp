// Allgather, reduce-scatter and alltoall of blocks that differ in size, by every algorithm:
// results, aborts at any step, deaths, ranks that disagree, and time.
#include <array>

#include <fmt/format.h>

#include "tests/catch.hpp"
#include "tests/collectives/dense_program.hpp"
#include "tests/collectives/uneven_program.hpp"
#include "tests/one_case.hpp"
#include "tests/sanitized.hpp"

namespace pith::test {

namespace {

bool has_blocks(const Algorithm& algorithm) {
  return algorithm.collective == Collective::allgather ||
         algorithm.collective == Collective::reduce_scatter ||
         algorithm.collective == Collective::alltoall;
}

constexpr std::array types{DType::u64, DType::u8, DType::i32};
constexpr std::array operations{Op::sum, Op::avg, Op::max, Op::bxor, Op::land};
constexpr std::array<std::size_t, 5> largest{1, 7, 33, 100, 16};

UnevenCase make_case(const Algorithm& algorithm, int ranks, std::uint64_t seed) {
  UnevenCase c;
  c.algorithm = &algorithm;
  c.ranks = ranks;
  c.sizes = static_cast<Sizes>(seed % sizes_count);
  c.largest = largest[seed / 2 % largest.size()];
  c.type = types[seed / 3 % types.size()];
  c.in_place = seed / 4 % 2 == 0 && algorithm.collective != Collective::alltoall;
  if (reduces(algorithm.collective)) {
    c.op = operations[seed / 5 % operations.size()];
    c.premultiplied = c.op == Op::sum && seed % 7 == 0;
  }
  c.tuning = {seed / 7 % 2 == 0 ? std::size_t{64} : 16, 1 + static_cast<int>(seed % 4)};
  c.seed = seed;
  c.order = seed % 3 == 0 ? seed : 0;
  return c;
}

// How the ranks reach each other's memory: each pair, each way, in a way of its own, or one way for
// all.
MemoryHandle::Reach reach(std::uint64_t how, int owner, int peer) {
  constexpr std::array ways{MemoryHandle::Reach::load_store, MemoryHandle::Reach::copy,
                            MemoryHandle::Reach::none};
  return ways[(how < 2 ? how : static_cast<std::uint64_t>(2 * owner + peer)) % ways.size()];
}

}  // namespace

TEST_CASE("blocks of different sizes", "[collectives][uneven]") {
  std::uint64_t seed = 0;
  for (const Algorithm& algorithm : algorithms()) {
    if (!has_blocks(algorithm)) continue;
    for (int ranks = 2; ranks <= 17; ++ranks) {
      for (int turn = 0; turn < (sanitized ? 10 : 40); ++turn) {
        const UnevenCase c = make_case(algorithm, ranks, ++seed);
        const std::string failure = run_case(c, simulator(seed));
        if (!failure.empty()) FAIL_CHECK(failure);
      }
    }
  }
}

TEST_CASE("blocks of different sizes in memory that ranks reach", "[collectives][uneven][views]") {
  std::uint64_t seed = 0;
  for (const Algorithm& algorithm : algorithms()) {
    if (!has_blocks(algorithm) || algorithm.name != "views") continue;
    for (int ranks = 2; ranks <= 9; ++ranks) {
      for (int turn = 0; turn < 30; ++turn) {
        const UnevenCase c = make_case(algorithm, ranks, ++seed);
        SimConfig config = simulator(0);
        config.reach = [seed](int owner, int peer) { return reach(seed % 3, owner, peer); };
        const std::string failure = run_case(c, config);
        if (!failure.empty()) FAIL_CHECK(failure);
      }
    }
  }
}

TEST_CASE("blocks of different sizes on hosts with several ranks", "[collectives][uneven]") {
  const std::vector<std::vector<int>> layouts{{0, 0, 1, 1},
                                              {0, 0, 0, 1, 2, 2},
                                              {2, 0, 1, 0, 0, 1},
                                              {0, 1, 0, 1, 0, 1, 0, 1},
                                              {3, 1, 1, 0, 2, 0, 1, 1, 0, 4, 1}};
  std::uint64_t seed = 0;
  for (const Algorithm& algorithm : algorithms()) {
    if (!has_blocks(algorithm) || algorithm.name != "hierarchical") continue;
    for (const std::vector<int>& hosts : layouts) {
      for (int turn = 0; turn < 40; ++turn) {
        UnevenCase c = make_case(algorithm, static_cast<int>(hosts.size()), ++seed);
        c.hosts = hosts;
        const std::string failure = run_case(c, simulator(seed));
        if (!failure.empty()) FAIL_CHECK(failure);
      }
    }
  }
  CHECK(seed > 0);
}

TEST_CASE("an abort at any step among blocks of different sizes", "[collectives][uneven][abort]") {
  for (const Algorithm& algorithm : algorithms()) {
    if (!has_blocks(algorithm)) continue;
    std::uint64_t points = 0;
    for (int ranks = 2; ranks <= 4; ++ranks) {
      for (std::uint64_t which = 0; which < sizes_count; ++which) {
        UnevenCase c = make_case(algorithm, ranks, which + 5 * static_cast<std::uint64_t>(ranks));
        c.largest = 21;
        SimConfig config = simulator(which);
        config.ranks = ranks;
        if (!config.late_kernels) {
          config.reach = [which](int owner, int peer) { return reach(which, owner, peer); };
        }
        INFO(describe(c) << ", simulator " << which);
        AbortOptions options;
        options.stride = sanitized ? 5 : 1;
        const auto make = [&]() -> std::unique_ptr<Program> {
          return std::make_unique<UnevenProgram>(c);
        };
        const AbortReport report = inject_aborts(config, make, options);
        CHECK(report.failure == "");
        points += report.points;
      }
    }
    CHECK(points > 50);
  }
}

TEST_CASE("a rank dies among many with blocks of different sizes", "[collectives][uneven]") {
  constexpr int ranks = sanitized ? 20 : 100;
  for (const Algorithm& algorithm : algorithms()) {
    if (!has_blocks(algorithm) || algorithm.ranks_max < ranks) continue;
    for (const double death : {0.0, 3e-6, 2e-5}) {
      const UnevenCase c = make_case(algorithm, ranks, 6);
      SimConfig config = simulator(0);
      config.ranks = ranks;
      World world(config);
      UnevenProgram program(c);
      world.sim().kill(3, death);
      auto task = [&](Call& call, int rank) { return program.start(call, rank); };
      const std::vector<Error> errors = run_ranks(world, task);
      INFO(describe(c) << ", death after " << death);
      for (int rank = 0; rank < ranks; ++rank) {
        const Error& error = errors[static_cast<std::size_t>(rank)];
        if (rank == 3) continue;
        CHECK((!error || error.code() == Code::remote));
        if (!error) CHECK(program.check_result(rank) == "");
      }
      CHECK(world.leaks() == "");
    }
  }
}

TEST_CASE("many ranks with blocks of different sizes", "[collectives][uneven]") {
  constexpr int ranks = sanitized ? 40 : 300;
  for (const Algorithm& algorithm : algorithms()) {
    if (!has_blocks(algorithm) || algorithm.ranks_max < ranks) continue;
    for (const Sizes sizes : {Sizes::random, Sizes::of_one}) {
      UnevenCase c = make_case(algorithm, ranks, 301);
      c.sizes = sizes;
      c.largest = 9;
      CHECK(run_case(c, {}) == "");
    }
  }
}

// Also where the shorter of the two ends with a whole chunk, and where one of them expects nothing.
TEST_CASE("ranks that count a block of an alltoall differently", "[collectives][uneven]") {
  for (const std::string_view name : {"pairwise", "views"}) {
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
      const int ranks = 2 + static_cast<int>(seed % 3);
      UnevenCase c = make_case(*find_algorithm(Collective::alltoall, name), ranks, seed);
      SimConfig config = simulator(0);
      config.ranks = ranks;
      config.reach = [seed](int owner, int peer) { return reach(seed, owner, peer); };
      const int wrong = static_cast<int>(seed % 2);
      UnevenProgram program(c);
      const auto chunk = static_cast<int>(c.tuning.chunk_bytes / size_of(c.type));
      const auto had = static_cast<int>(program.size(1 - wrong, wrong));
      const int more = std::array{1, -1, chunk, -had}[seed / 2 % 4];
      if (more == 0 || had + more < 0) continue;
      program.mistake(wrong, 1 - wrong, more);
      World world(config);
      auto task = [&](Call& call, int rank) { return program.start(call, rank); };
      const std::vector<Error> errors = run_ranks(world, task);
      INFO(describe(c) << ", rank " << wrong << " expects " << had + more << " for " << had);
      const Error& told = errors[static_cast<std::size_t>(wrong)];
      REQUIRE(told);
      CHECK(told.code() == Code::invalid_usage);
      CHECK(std::string(told.message()).starts_with(fmt::format("rank {} sent ", 1 - wrong)));
      for (const Error& error : errors) CHECK((!error || error.code() == Code::invalid_usage));
      CHECK(world.leaks() == "");
    }
  }
}

TEST_CASE("one long block takes less time than blocks that are all as long",
          "[collectives][uneven]") {
  for (const Algorithm& algorithm : algorithms()) {
    if (!has_blocks(algorithm)) continue;
    std::array<double, 2> seconds{};
    for (std::size_t i = 0; i < seconds.size(); ++i) {
      UnevenCase c;
      c.algorithm = &algorithm;
      c.ranks = 8;
      c.type = DType::u8;
      c.sizes = i == 0 ? Sizes::of_one : Sizes::equal;
      c.largest = std::size_t{256} << 10;
      c.tuning = {std::size_t{16} << 10, 4};
      SimConfig config;
      config.ranks = c.ranks;
      config.link = {2e-6, 1e-9};
      config.gamma_s_per_byte = 1e-10;
      World world(config);
      UnevenProgram program(c);
      auto task = [&](Call& call, int rank) { return program.start(call, rank); };
      for (const Error& error : run_ranks(world, task)) REQUIRE(!error);
      seconds[i] = world.elapsed_s();
    }
    INFO(name_of(algorithm.collective)
         << " " << algorithm.name << ": " << seconds[0] << " s, " << seconds[1] << " s");
    // Where one rank has the block and sends it to every other, its link is as busy as if all had.
    const bool is_direct = algorithm.name == "views" || algorithm.name == "direct" ||
                           algorithm.collective == Collective::alltoall;
    const double share = is_direct ? 1.01 : algorithm.name == "ring" ? 0.35 : 0.6;
    CHECK(seconds[0] < share * seconds[1]);
  }
}

}  // namespace pith::test
