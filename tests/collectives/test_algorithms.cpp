// Every algorithm against the plain reference: types, operations, numbers of ranks, sizes around
// chunk and block boundaries, in and out of place, unaligned. PITH_TEST_FULL=1 runs the product of
// types, operations, ranks and sizes; by default every two values of two settings meet.
#include <array>

#include <fmt/format.h>

#include "model/rules.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/algorithm_conformance.hpp"
#include "tests/collectives/dense_program.hpp"
#include "tests/collectives/pairwise.hpp"
#include "tests/one_case.hpp"
#include "tests/sanitized.hpp"

namespace pith::test {

namespace {

constexpr std::array tunings{Tuning{64, 1}, Tuning{64, 2}, Tuning{128, 3}, Tuning{256, 4}};
constexpr int size_count = 14;

// Sizes in elements where something changes: blocks, chunks of blocks, chunks of the vector.
std::size_t size_at(int which, int ranks, DType type, const Tuning& tuning) {
  const auto p = static_cast<std::size_t>(ranks);
  const std::size_t chunk = std::max<std::size_t>(1, tuning.chunk_bytes / size_of(type));
  const std::array<std::size_t, size_count> sizes{0,
                                                  1,
                                                  p - 1,
                                                  p,
                                                  p + 1,
                                                  chunk - 1,
                                                  chunk,
                                                  chunk + 1,
                                                  p * chunk,
                                                  p * chunk - 1,
                                                  p * chunk + 1,
                                                  255,
                                                  256,
                                                  3 * p * chunk + p / 2};
  return sizes[static_cast<std::size_t>(which)];
}

DenseCase make_case(const Algorithm& algorithm, const Combination& v, std::uint64_t seed) {
  DenseCase c;
  c.algorithm = &algorithm;
  c.type = static_cast<DType>(v[0]);
  c.op = possible_op(algorithm.collective, c.type, static_cast<Op>(v[1]));
  c.ranks = v[2] + 2;
  c.tuning = tunings[static_cast<std::size_t>(v[6])];
  c.count = size_at(v[3], c.ranks, c.type, c.tuning);
  c.in_place = v[4] == 1;
  c.shift = static_cast<std::size_t>(v[5]);
  c.root = static_cast<int>(seed % static_cast<std::uint64_t>(c.ranks));
  c.seed = seed;
  return c;
}

// Kernels that end late show a forgotten fence; small slots show messages that come in pieces.
SimConfig simulator(int which) {
  SimConfig config;
  config.kernel_s = 1e-7;
  config.gamma_s_per_byte = 1e-9;
  config.late_kernels = which != 0;
  if (which == 2) config.slot_bytes = 48;
  return config;
}

std::vector<Combination> combinations() {
  const std::array sizes{dtype_count, op_count, 16, size_count, 2, 3, int{tunings.size()}, 3};
  if (!wants_every_combination()) return pairwise(sizes);
  std::vector<Combination> all = every(std::span(sizes).first(5));
  int turn = 0;
  for (Combination& v : all) {
    v.insert(v.end(), {turn % 3, turn / 3 % 4, turn / 12 % 3});
    turn += 7;
  }
  return all;
}

// By load and store, by copies, or as its owner or the pair wants it, also by messages.
MemoryHandle::Reach reach(int how, int owner, int peer) {
  constexpr std::array reaches{MemoryHandle::Reach::load_store, MemoryHandle::Reach::copy,
                               MemoryHandle::Reach::none};
  const int way = how < 2 ? how : how == 2 ? owner : 2 * owner + peer;
  return reaches[static_cast<std::size_t>(way) % reaches.size()];
}

std::string run_over_views(const DenseCase& c, int how, bool traced) {
  const std::string name =
      fmt::format("{}, reach {}{}", describe(c), how, traced ? ", traced" : "");
  if (!is_wanted(name)) return {};
  SimConfig config = simulator(0);  // whoever works on host memory of others does so at once
  config.ranks = c.ranks;
  config.reach = [how](int owner, int peer) { return reach(how, owner, peer); };
  World world(config);
  if (c.order != 0) world.set_order(random_order(c.ranks, c.order));
  if (traced) world.record(64);
  std::string failure = run_in(world, c);
  if (failure.empty()) return failure;
  print_again("build/bin/test_collectives '[dense][views]'", name);
  return name + "\n  " + failure;
}

void flip(std::span<std::byte> memory) {
  for (std::byte& byte : memory) byte = ~byte;
}

// The rank's memory is its user's as soon as its call has returned.
Task<Error> run_and_flip(Call& call, DenseProgram& program, int rank) {
  Task<Error> whole = program.start(call, rank);
  Error error = co_await std::move(whole);
  flip(program.memory(rank));
  co_return error;
}

std::string run_and_flip(const DenseCase& c, int how) {
  SimConfig config = simulator(0);
  config.ranks = c.ranks;
  config.reach = [how](int owner, int peer) { return reach(how, owner, peer); };
  World world(config);
  world.start_s = [&](int rank) { return 1e-6 * (rank * 5 % c.ranks); };
  DenseProgram program(c);
  auto task = [&](Call& call, int rank) { return run_and_flip(call, program, rank); };
  for (const Error& error : run_ranks(world, task)) {
    if (error) return error.message();
  }
  for (int rank = 0; rank < c.ranks; ++rank) flip(program.memory(rank));
  return program.check();
}

}  // namespace

TEST_CASE("every algorithm computes what the reference does",
          "[collectives][dense][conformance][combinations]") {
  const std::vector<Combination> all = combinations();
  std::uint64_t seed = 0;
  int which = 0;
  for (const Algorithm& algorithm : tested_algorithms()) {
    ++which;
    if (algorithm.collective == Collective::barrier) continue;
    for (std::size_t i = 0; i < all.size(); ++i) {
      ++seed;
      // Sanitizers look at memory: what an algorithm leaves out the next one has.
      if (sanitized && !is_due({which, static_cast<int>(i)})) continue;
      const std::string failure =
          run_case(make_case(algorithm, all[i], seed), simulator(all[i][7]));
      if (!failure.empty()) FAIL_CHECK(failure);
    }
  }
  CHECK(seed >= 100);
}

TEST_CASE("every algorithm with every type and operation", "[collectives][dense][conformance]") {
  std::uint64_t seed = 1000;
  int which = 0;
  for (const Algorithm& algorithm : tested_algorithms()) {
    ++which;
    if (algorithm.collective == Collective::barrier) continue;
    for (int t = 0; t < dtype_count; ++t) {
      for (int o = 0; o < op_count; ++o) {
        const int ranks = static_cast<int>(++seed % 16);
        // Sanitizers look at memory, for which fewer do.
        if (!is_turn(which + t + o, 0, sanitized ? 4 : 2)) continue;
        const Combination values{t, o, ranks, size_count - 1, o % 2, t % 3, t % 4, 0};
        const std::string failure = run_case(make_case(algorithm, values, seed), simulator(t % 3));
        if (!failure.empty()) FAIL_CHECK(failure);
      }
    }
  }
}

// Scaling comes before any algorithm, so only its own shapes matter: pieces of eight chunks.
TEST_CASE("premultiplied sums", "[collectives][dense][conformance]") {
  std::uint64_t seed = 2000;
  for (const Algorithm& algorithm : tested_algorithms()) {
    if (!reduces(algorithm.collective)) continue;
    for (int t = 0; t < dtype_count; ++t) {
      for (const int which : {1, 5, 6, 7, size_count - 2, size_count - 1}) {
        const int ranks = static_cast<int>(++seed % 16);
        const Combination values{t, 0, ranks, which, which % 2, t % 3, t % 4, 0};
        DenseCase c = make_case(algorithm, values, seed);
        c.premultiplied = true;
        const std::string failure = run_case(c, simulator(t % 3));
        if (!failure.empty()) FAIL_CHECK(failure);
      }
    }
  }
}

TEST_CASE("every root", "[collectives][dense][conformance]") {
  constexpr std::array rooted{Collective::broadcast, Collective::reduce, Collective::gather,
                              Collective::scatter};
  for (const Algorithm& algorithm : tested_algorithms()) {
    if (std::ranges::find(rooted, algorithm.collective) == rooted.end()) continue;
    for (int ranks = 2; ranks <= 17; ++ranks) {
      for (int root = 0; root < ranks; ++root) {
        DenseCase c;
        c.algorithm = &algorithm;
        c.ranks = ranks;
        c.root = root;
        c.count = static_cast<std::size_t>(8 * (root % 5) + ranks % 3);
        c.in_place = (root + ranks) % 2 == 0;
        const std::string failure = run_case(c, simulator(root % 3));
        if (!failure.empty()) FAIL_CHECK(failure);
      }
    }
  }
}

TEST_CASE("every algorithm over each other's memory", "[collectives][dense][views]") {
  std::uint64_t seed = 3000;
  for (const auto& [collective, name] : over_views) {
    const Algorithm& algorithm = *find_algorithm(collective, name);
    for (int ranks = 2; ranks <= 9; ++ranks) {
      for (int how = 0; how < 4; ++how) {
        const int type = static_cast<int>(++seed % dtype_count);
        const int op = (how + ranks) % op_count;
        const Combination values{type, op, ranks - 2, size_count - 1 - how % 3, how % 2, 0, how, 0};
        DenseCase c = make_case(algorithm, values, seed);
        c.premultiplied = c.op == Op::sum && reduces(collective) && ranks % 2 == 0;
        c.order = how % 2 == 0 ? 0 : seed;
        for (const bool traced : {false, true}) {
          const std::string failure = run_over_views(c, how, traced);
          if (!failure.empty()) FAIL_CHECK(failure);
        }
      }
    }
  }
}

TEST_CASE("nobody touches memory of a rank whose call has returned", "[collectives][views]") {
  for (const auto& [collective, name] : over_views) {
    for (int ranks = 2; ranks <= 9; ++ranks) {
      for (int how = 0; how < 4; ++how) {
        DenseCase c;
        c.algorithm = find_algorithm(collective, name);
        c.ranks = ranks;
        c.count = 1009;
        INFO(describe(c) << ", reach " << how);
        CHECK(run_and_flip(c, how) == "");
      }
    }
  }
}

TEST_CASE("nobody leaves a barrier before everybody has come", "[collectives]") {
  const Algorithm* barrier = find_algorithm(Collective::barrier, "dissemination");
  REQUIRE(barrier != nullptr);
  for (int ranks = 2; ranks <= 17; ++ranks) {
    for (int last = 0; last < ranks; ++last) {
      SimConfig config;
      config.ranks = ranks;
      World world(config);
      world.start_s = [last](int rank) { return rank == last ? 1e-3 : 1e-6 * rank; };
      auto task = [&](Call& call, int) { return barrier->run(call, {}); };
      for (const Error& error : run_ranks(world, task)) REQUIRE(!error);
      for (int rank = 0; rank < ranks; ++rank) REQUIRE(world.ended_s(rank) >= 1e-3);
      REQUIRE(world.leaks() == "");
    }
  }
}

namespace {

struct Rule {
  Collective collective;
  int ranks;
  std::size_t bytes;
  bool views;
  bool oversubscribed;
  std::string_view name;
  bool apart = false;
  bool devices = false;
};

constexpr std::size_t kib = 1024;
constexpr Collective sum = Collective::allreduce;

// Both sides of every border that the rule documents.
constexpr Rule rules[] = {
    {sum, 2, 4 * kib, true, false, "recursive_doubling"},
    {sum, 2, 4 * kib + 1, true, false, "one_shot"},
    {sum, 2, 32 * kib, true, false, "one_shot"},
    {sum, 2, 32 * kib + 1, true, false, "two_shot"},
    {sum, 8, 2 * kib + 1, true, false, "two_shot"},
    {sum, 8, 1024 * kib* kib, true, false, "two_shot"},
    {sum, 9, 9 * 16 * kib, true, false, "ring"},
    {sum, 9, 9 * 16 * kib - 9, true, false, "double_tree"},
    {sum, 9, 8 * kib, true, false, "double_tree"},
    {sum, 9, 8 * kib - 1, true, false, "recursive_doubling"},
    {sum, 16, 16 * 16 * kib - 16, true, false, "rabenseifner"},
    {sum, 16, 2 * kib, true, false, "recursive_doubling"},
    {sum, 2, 32 * kib, false, false, "recursive_doubling"},
    {sum, 2, 32 * kib + 1, false, false, "ring"},
    {sum, 4, 4 * 8192 * kib - 4, false, false, "two_shot"},
    {sum, 4, 4 * 8192 * kib, false, false, "ring"},
    {sum, 4, 4 * 64 * kib - 4, false, false, "two_shot", true},
    {sum, 4, 4 * 64 * kib, false, false, "ring", true},
    {sum, 2, 2 * 8192 * kib - 2, false, false, "ring", true},
    {sum, 8, 1024 * kib* kib, true, false, "two_shot", true},
    {sum, 5, 5 * 16 * kib, false, false, "ring"},
    {sum, 5, 5 * 16 * kib - 5, false, false, "recursive_doubling"},
    {sum, 9, 128 * kib, false, false, "double_tree"},
    {sum, 9, 128 * kib - 1, false, false, "recursive_doubling"},
    {sum, 8, 8 * 16 * kib - 8, false, false, "rabenseifner"},
    {sum, 8, 2 * kib, true, true, "direct"},
    {sum, 8, 2 * kib + 1, true, true, "recursive_doubling"},
    {sum, 9, 8, true, true, "recursive_doubling"},
    {sum, 4, 32 * kib, true, true, "recursive_doubling"},
    {sum, 4, 32 * kib + 1, true, true, "two_shot"},
    {sum, 9, 9 * 128 * kib, true, true, "ring"},
    {sum, 9, 9 * 128 * kib - 9, true, true, "double_tree"},
    {sum, 16, 16 * 128 * kib - 16, true, true, "rabenseifner"},
    {Collective::broadcast, 9, 64 * kib, true, false, "binomial"},
    {Collective::broadcast, 9, 64 * kib + 1, true, false, "chain"},
    {Collective::broadcast, 2, 64 * kib + 1, false, false, "chain"},
    {Collective::broadcast, 2, 16 * kib, true, false, "binomial"},
    {Collective::broadcast, 8, 16 * kib + 1, true, true, "views"},
    {Collective::reduce_scatter, 2, 1024, true, false, "recursive_halving"},
    {Collective::reduce_scatter, 2, 1025, true, false, "ring"},
    {Collective::reduce_scatter, 3, 8, true, false, "direct"},
    {Collective::reduce_scatter, 4, 8 * kib, true, true, "direct"},
    {Collective::reduce_scatter, 8, 4 * kib, true, false, "direct"},
    {Collective::reduce_scatter, 4, 8 * kib + 1, true, false, "views"},
    {Collective::reduce_scatter, 8, 4 * kib + 1, true, true, "views"},
    {Collective::reduce_scatter, 9, 1024 * kib, true, false, "ring"},
    {Collective::reduce_scatter, 4, 8 * kib, false, false, "recursive_halving"},
    {Collective::reduce_scatter, 4, 8 * kib + 1, false, false, "ring"},
    {Collective::allgather, 9, 227, true, false, "bruck"},
    {Collective::allgather, 9, 228, true, false, "ring"},
    {Collective::allgather, 2, 16 * kib, true, false, "ring"},
    {Collective::allgather, 3, 8, true, true, "direct"},
    {Collective::allgather, 4, 8 * kib, false, false, "bruck"},
    {Collective::allgather, 4, 8 * kib + 1, false, false, "ring"},
    {Collective::allgather, 4, 8 * kib, true, true, "direct"},
    {Collective::allgather, 4, 8 * kib, true, false, "direct"},
    {Collective::allgather, 4, 8 * kib + 1, true, false, "views"},
    {Collective::allgather, 2, 16 * kib + 1, true, true, "views"},
    {Collective::allgather, 9, 1024 * kib, true, false, "ring"},
    {Collective::allgather, 3, 8, false, false, "ring"},
    {Collective::alltoall, 4, 1024 * kib, true, false, "pairwise"},
    {Collective::scan, 4, 2 * kib, true, false, "recursive_doubling"},
    {Collective::scan, 4, 2 * kib + 1, true, false, "chain"},
    {Collective::scan, 4, 32 * kib, false, false, "recursive_doubling"},
    {Collective::scan, 4, 32 * kib + 1, false, false, "chain"},
    {Collective::scan, 3, 8, false, false, "chain"},
    {Collective::exscan, 17, 32 * kib, false, false, "recursive_doubling"},
    {Collective::exscan, 17, 32 * kib + 1, false, false, "chain"},
    {Collective::exscan, 2, 8, true, false, "chain"},
    {Collective::allgather, 8, 8, true, true, "views", false, true},
    {Collective::allgather, 8, 8, false, false, "bruck", true, true},
    {Collective::reduce_scatter, 2, 8, true, false, "views", false, true},
    {Collective::broadcast, 8, 8, true, false, "views", false, true},
    {Collective::broadcast, 2, 1024 * kib, true, false, "views", false, true},
    {Collective::broadcast, 9, 8, true, false, "binomial", false, true},
    {Collective::broadcast, 4, 8, false, false, "binomial", true, true},
    {Collective::alltoall, 8, 8, true, false, "views", false, true},
    {Collective::alltoall, 9, 8, true, false, "pairwise", false, true},
    {Collective::alltoall, 4, 8, false, false, "pairwise", true, true},
};

}  // namespace

TEST_CASE("the fixed rule is the documented one", "[collectives]") {
  for (const Rule& rule : rules) {
    const Shape shape{rule.ranks,  rule.bytes,          {},
                      rule.views,  rule.oversubscribed, rule.apart ? rule.ranks : 1,
                      rule.devices};
    INFO(name_of(rule.collective) << ", " << rule.ranks << " ranks, " << rule.bytes << " bytes, "
                                  << (rule.views ? "views" : "no views")
                                  << (rule.oversubscribed ? ", oversubscribed" : "")
                                  << (rule.apart ? ", apart" : "")
                                  << (rule.devices ? ", devices" : ""));
    CHECK(default_algorithm(shape, rule.collective).name == rule.name);
  }
}

TEST_CASE("the default is an algorithm of the collective", "[collectives]") {
  for (std::size_t c = 0; c < collective_count; ++c) {
    const auto collective = static_cast<Collective>(c);
    if (collective == Collective::split) continue;
    for (const int ranks : {2, 3, 8, 9, 32, 33, 4096}) {
      for (std::size_t bytes = 0; bytes <= std::size_t{1} << 30; bytes = bytes * 2 + 1) {
        for (const bool oversubscribed : {false, true}) {
          const Shape shape{ranks, bytes, {}, oversubscribed, oversubscribed};
          const Algorithm& chosen = default_algorithm(shape, collective);
          REQUIRE(chosen.collective == collective);
          REQUIRE(ranks <= chosen.ranks_max);
          const double seconds = chosen.cost(shape, {1e-6, 1e-10, 1e-11});
          REQUIRE(seconds >= 0);
          REQUIRE(seconds < 1e5);
        }
      }
    }
  }
}

}  // namespace pith::test
