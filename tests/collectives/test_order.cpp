// Ranks walked in another order than by their numbers: what the caller gets does not change, and
// where hosts are joined by slow links a good order takes less time.
#include <array>
#include <numeric>

#include "collectives/pair_windows.hpp"
#include "collectives/point_to_point.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/algorithm_conformance.hpp"
#include "tests/collectives/dense_program.hpp"

namespace pith::test {

namespace {

constexpr std::array types{DType::u64, DType::f32, DType::i8, DType::bf16};
constexpr std::array operations{Op::sum, Op::avg, Op::max, Op::bxor, Op::land};
constexpr std::array<std::size_t, 6> counts{1, 7, 33, 64, 257, 0};

DenseCase make_case(const Algorithm& algorithm, int ranks, std::uint64_t seed) {
  DenseCase c;
  c.algorithm = &algorithm;
  c.ranks = ranks;
  c.type = types[seed % types.size()];
  c.op = possible_op(algorithm.collective, c.type, operations[seed / 2 % operations.size()]);
  c.count = counts[seed / 3 % counts.size()];
  c.root = static_cast<int>(seed % static_cast<std::uint64_t>(ranks));
  c.in_place = seed / 5 % 2 == 0;
  c.premultiplied = c.op == Op::sum && reduces(algorithm.collective) && seed % 7 == 0;
  c.tuning.lanes = 1 + static_cast<int>(seed % 3);
  c.seed = c.order = seed;
  return c;
}

}  // namespace

TEST_CASE("a random order of the ranks changes no result", "[collectives][order][conformance]") {
  std::uint64_t seed = 0;
  for (const Algorithm& algorithm : tested_algorithms()) {
    if (algorithm.collective == Collective::barrier) continue;
    for (int ranks = 1; ranks <= 17; ++ranks) {
      if (ranks == 1 && algorithm.collective != Collective::allgather) continue;
      for (int turn = 0; turn < 6; ++turn) {
        const DenseCase c = make_case(algorithm, ranks, ++seed);
        const std::string failure = run_case(c, simulator(seed), "[order]");
        if (!failure.empty()) FAIL_CHECK(failure);
      }
    }
  }
}

TEST_CASE("messages of pairs go by the caller's ranks", "[collectives][order]") {
  constexpr int ranks = 5;
  SimConfig config;
  config.ranks = ranks;
  World world(config);
  world.set_order(RankOrder({3, 1, 4, 0, 2}));
  std::array<std::array<int, ranks>, ranks> sent{};
  std::array<std::array<int, ranks>, ranks> received{};
  std::array<std::vector<Message>, ranks> messages;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    for (int peer = 0; peer < ranks; ++peer) {
      const auto p = static_cast<std::size_t>(peer);
      sent[r][p] = 10 * rank + peer;
      const auto bytes = [](int& number) {
        return Bytes{reinterpret_cast<std::byte*>(&number), sizeof number};
      };
      messages[r].push_back({bytes(sent[r][p]), 1, DType::i32, peer, true});
      messages[r].push_back({bytes(received[r][p]), 1, DType::i32, peer, false});
    }
  }
  std::vector<PairWindows> windows(ranks, PairWindows(ranks));
  auto task = [&](Call& call, int rank) {
    const auto r = static_cast<std::size_t>(rank);
    return exchange_messages(call, messages[r], windows[r], 64);
  };
  for (const Error& error : run_ranks(world, task)) REQUIRE(!error);
  for (std::size_t r = 0; r < ranks; ++r) {
    for (std::size_t p = 0; p < ranks; ++p) {
      CHECK(received[r][p] == static_cast<int>(10 * p + r));
    }
  }
}

namespace {

// Two hosts, each with every other rank, joined by a slow link.
int host_of(int rank) { return rank % 2; }

struct Outcome {
  double seconds = 0;
  int crossings = 0;  // messages between the hosts
};

Outcome run_on_two_hosts(const Algorithm& algorithm, int ranks, const RankOrder& order) {
  DenseCase c;
  c.algorithm = &algorithm;
  c.ranks = ranks;
  c.count = std::size_t{4096} * static_cast<std::size_t>(ranks);
  c.type = DType::f32;
  c.tuning = {4096, 4};
  SimConfig config;
  config.ranks = ranks;
  config.link_of = [](int from, int to) {
    return host_of(from) == host_of(to) ? SimLink{1e-6, 1e-10} : SimLink{5e-5, 1e-9};
  };
  World world(config);
  world.set_order(order);
  world.record();
  DenseProgram program(c);
  auto task = [&](Call& call, int rank) { return program.start(call, rank); };
  for (const Error& error : run_ranks(world, task)) REQUIRE(!error);
  REQUIRE(program.check() == "");
  Outcome outcome;
  outcome.seconds = world.elapsed_s();
  for (int rank = 0; rank < ranks; ++rank) {
    for (const Step& step : world.recorder(rank).steps()) {
      outcome.crossings += step.op == Step::Op::send && host_of(step.peer) != host_of(rank);
    }
  }
  return outcome;
}

RankOrder host_by_host(int ranks) {
  std::vector<int> order;
  for (int rank = 0; rank < ranks; rank += 2) order.push_back(rank);
  for (int rank = 1; rank < ranks; rank += 2) order.push_back(rank);
  return RankOrder(std::move(order));
}

}  // namespace

// A port for each rank is all that the simulator has, not one for each host: where several ranks of
// a host cross at once it is too kind, so that trees are judged by their messages alone.
TEST_CASE("an order by hosts crosses slow links less often", "[collectives][order][cost][long]") {
  struct Walk {
    Collective collective;
    const char* name;
    bool faster;
  };
  constexpr Walk walks[] = {
      {Collective::allreduce, "ring", true},      {Collective::allgather, "ring", true},
      {Collective::reduce_scatter, "ring", true}, {Collective::broadcast, "chain", true},
      {Collective::reduce, "tree", true},         {Collective::allreduce, "double_tree", false},
      {Collective::broadcast, "binomial", false}, {Collective::gather, "binomial", false},
      {Collective::scatter, "binomial", false},
  };
  for (const Walk& walk : walks) {
    const Algorithm* algorithm = find_algorithm(walk.collective, walk.name);
    REQUIRE(algorithm != nullptr);
    for (const int ranks : {8, 12, 16}) {
      const Outcome by_rank = run_on_two_hosts(*algorithm, ranks, {});
      const Outcome by_host = run_on_two_hosts(*algorithm, ranks, host_by_host(ranks));
      INFO(name_of(walk.collective)
           << " " << walk.name << ", " << ranks << " ranks: " << by_rank.seconds * 1e6 << " us and "
           << by_rank.crossings << " crossings by rank, " << by_host.seconds * 1e6 << " us and "
           << by_host.crossings << " by host");
      CHECK(by_host.crossings < by_rank.crossings);
      if (walk.faster) CHECK(by_host.seconds < by_rank.seconds);
    }
  }
}

TEST_CASE("a ring crosses each border of hosts once a step", "[collectives][order]") {
  constexpr int ranks = 8;
  const Algorithm* ring = find_algorithm(Collective::allgather, "ring");
  REQUIRE(ring != nullptr);
  const Outcome by_rank = run_on_two_hosts(*ring, ranks, {});
  const Outcome by_host = run_on_two_hosts(*ring, ranks, host_by_host(ranks));
  CHECK(4 * by_host.crossings == by_rank.crossings);
}

}  // namespace pith::test
