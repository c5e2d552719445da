// CHOCO-SGD against its definition, with every rank's memory of every neighbour, and what gossip
// must do: ranks come nearer to each other, and their mean stays.
#include <cmath>
#include <set>

#include "compress/gossip/choco_scheme.hpp"
#include "compress/saved_state.hpp"
#include "kernels/host_compute.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/interruption.hpp"
#include "tests/collectives/largest.hpp"
#include "tests/collectives/rounded.hpp"
#include "tests/collectives/sparse_program.hpp"

namespace pith::test {

namespace {

using Vector = std::vector<float>;

std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

SparseCase case_of(const std::string& spec, int ranks, std::vector<std::size_t> counts) {
  SparseCase c;
  c.spec = spec;
  c.ranks = ranks;
  c.counts = std::move(counts);
  c.average = true;
  return c;
}

using Stated = std::shared_ptr<const StatedGraph>;

Stated stated(const std::vector<int>& from, const std::vector<int>& to) {
  return *StatedGraph::of(from, to);
}

// A star with a tail: degrees from 1 to 4. Of two ranks an edge.
Stated uneven_graph(int ranks) {
  std::vector<int> from, to;
  for (int r = 1; r < ranks; ++r) {
    from.push_back(r);
    to.push_back(r < 5 ? 0 : r - 1);
  }
  return stated(from, to);
}

GossipGraph graph_of(const std::string& spec, int rank, int ranks) {
  const Spec parsed = *Spec::parse(spec);
  if (states_graph(parsed)) return {*uneven_graph(ranks), rank, ranks};
  return {graph_of(parsed), rank, ranks};
}

void state_graphs(SparseProgram& program) {
  const int ranks = program.sparse_case().ranks;
  for (int r = 0; r < ranks; ++r) {
    REQUIRE_FALSE(state_graph(program.compressor(r), uneven_graph(ranks)));
  }
}

std::vector<int> neighbours(const std::string& spec, int rank, int ranks) {
  const GossipGraph graph = graph_of(spec, rank, ranks);
  std::vector<int> all;
  for (int k = 0; k < graph.degree(); ++k) all.push_back(graph[k]);
  return all;
}

// The definition, of one tensor.
class ChocoReference {
 public:
  ChocoReference(const std::string& spec, int ranks, std::size_t count)
      : text_(spec), spec_(*Spec::parse(spec)), told_(at(ranks), Vector(count)) {}

  std::vector<Vector> step(const std::vector<Vector>& x) {
    const auto ranks = static_cast<int>(x.size());
    for (int r = 0; r < ranks; ++r) tell(x[at(r)], told_[at(r)]);
    std::vector<Vector> next = x;
    for (int r = 0; r < ranks; ++r) {
      const GossipGraph graph = graph_of(text_, r, ranks);
      std::vector<double> parts;
      for (int k = 0; k < graph.degree(); ++k) parts.push_back(parts_of(ranks, r, graph[k]));
      for (std::size_t i = 0; i < x[0].size(); ++i) {
        double sum = 0;
        for (int k = 0; k < graph.degree(); ++k) {
          sum += (double(told_[at(graph[k])][i]) - told_[at(r)][i]) / parts[at(k)];
        }
        next[at(r)][i] = static_cast<float>(x[at(r)][i] + gamma_of(spec_) * sum);
      }
    }
    return next;
  }
  const Vector& told(int rank) const { return told_[at(rank)]; }

 private:
  // One over the weight that the ranks have for each other.
  double parts_of(int ranks, int one, int other) const {
    const auto degree = [&](int rank) { return graph_of(text_, rank, ranks).degree(); };
    return 1 + std::max(degree(one), degree(other));
  }
  void tell(const Vector& x, Vector& told) const {
    Vector difference(x.size());
    Vector magnitudes(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      difference[i] = x[i] - told[i];
      magnitudes[i] = std::fabs(difference[i]);
    }
    for (const std::size_t i : largest(magnitudes, elected_of(spec_.density, x.size()))) {
      told[i] += rounded(difference[i], spec_.values);
    }
  }

  std::string text_;
  Spec spec_;
  std::vector<Vector> told_;  // what the neighbours of each rank know
};

double distance(const std::vector<Vector>& x) {
  double squares = 0;
  for (std::size_t i = 0; i < x[0].size(); ++i) {
    double mean = 0;
    for (const Vector& one : x) mean += double(one[i]) / static_cast<double>(x.size());
    for (const Vector& one : x) squares += (double(one[i]) - mean) * (double(one[i]) - mean);
  }
  return std::sqrt(squares);
}

std::vector<Vector> parameters(SparseProgram& program) {
  std::vector<Vector> x;
  for (int r = 0; r < program.sparse_case().ranks; ++r) x.push_back(program.gradient(r));
  return x;
}

// The results become the parameters.
void go_on(SparseProgram& program) {
  for (int r = 0; r < program.sparse_case().ranks; ++r) program.gradient(r) = program.result(r);
}

Task<Error> give_up(Call& call) {
  co_return call.fail(Error(Code::internal, "one rank has given up"));
}

}  // namespace

TEST_CASE("graphs of gossip are symmetric, and every rank has as many neighbours",
          "[sparse][gossip]") {
  for (const char* graph : {"ring", "torus", "complete"}) {
    const std::string spec = fmt::format("choco:graph={}", graph);
    for (int ranks = 1; ranks <= 20; ++ranks) {
      INFO(spec << ", " << ranks);
      const std::size_t degree = neighbours(spec, 0, ranks).size();
      for (int r = 0; r < ranks; ++r) {
        const std::vector<int> mine = neighbours(spec, r, ranks);
        CHECK(mine.size() == degree);
        CHECK(std::set<int>(mine.begin(), mine.end()).size() == degree);
        for (const int other : mine) {
          const std::vector<int> theirs = neighbours(spec, other, ranks);
          CHECK(other != r);
          CHECK(std::count(theirs.begin(), theirs.end(), r) == 1);
        }
      }
    }
  }
  CHECK(neighbours("choco:graph=torus", 0, 12) == std::vector<int>{1, 3, 4, 8});
  CHECK(neighbours("choco", 0, 5) == std::vector<int>{1, 4});
}

TEST_CASE("weights of a stated graph are symmetric, and leave a rank a part of its own",
          "[sparse][gossip]") {
  for (int ranks = 1; ranks <= 12; ++ranks) {
    const Stated edges = uneven_graph(ranks);
    REQUIRE_FALSE(edges->check(ranks));
    for (int r = 0; r < ranks; ++r) {
      const GossipGraph mine(*edges, r, ranks);
      CHECK(mine.weight() < 1);
      for (int k = 0; k < mine.degree(); ++k) {
        const GossipGraph theirs(*edges, mine[k], ranks);
        int found = 0;
        for (int j = 0; j < theirs.degree(); ++j) {
          if (theirs[j] != r) continue;
          ++found;
          CHECK(theirs.parts(j) == mine.parts(k));
        }
        CHECK(found == 1);
      }
    }
  }
}

TEST_CASE("a stated graph must have edges between ranks that exist, and join all",
          "[sparse][gossip]") {
  const auto says = [](const Error& error, std::string_view words) {
    const std::string message = error.message();
    INFO(message);
    CHECK(message.find(words) != std::string::npos);
  };
  const auto refusal = [](std::vector<int> from, std::vector<int> to) {
    return StatedGraph::of(from, to).error();
  };
  says(refusal({0, -1}, {1, 2}), "joins -1 and 2, expected ranks");
  says(refusal({3}, {3}), "joins 3 and 3, expected two different ranks");
  says(refusal({0, 1, 2}, {1, 2, 1}), "joins 1 and 2, expected every edge once");
  says(stated({0, 1}, {1, 4})->check(4), "joins 1 and 4, expected ranks below 4");
  says(stated({0, 2}, {1, 3})->check(4), "joins ranks 0 and 2");
  CHECK_FALSE(stated({}, {})->check(1));
  CHECK_FALSE(stated({3, 1, 2}, {2, 2, 0})->check(4));
}

TEST_CASE("a graph stays once ranks know of each other", "[sparse][gossip]") {
  SparseProgram program(case_of("choco:density=0.1,graph=stated", 3, {100}));
  World world(world_of(program.sparse_case()));
  state_graphs(program);
  program.draw(1);
  const std::uint64_t digest = program.compressor(0).digest();
  REQUIRE_FALSE(state_graph(program.compressor(0), stated({0, 1}, {1, 2})));
  CHECK(program.compressor(0).digest() != digest);
  state_graphs(program);
  REQUIRE(program.call_all(world) == "");
  CHECK(state_graph(program.compressor(0), stated({0, 1}, {1, 2})).code() == Code::invalid_usage);
  CHECK_FALSE(state_graph(program.compressor(0), uneven_graph(3)));
  std::vector<std::byte> bytes(saved_bytes(program.compressor(0)));
  save(program.compressor(0), bytes.data());
  program.compressor(0).forget_delivered();
  CHECK(program.compressor(0).gossip.graph);
  CHECK_FALSE(state_graph(program.compressor(0), stated({0, 1}, {1, 2})));
  HostCompute host;
  Compressor loaded(*Spec::parse("choco:density=0.1,graph=stated"));
  REQUIRE_FALSE(state_graph(loaded, stated({0, 1}, {1, 2})));
  CHECK(std::string(load(loaded, host, bytes).message()).find("another graph") !=
        std::string::npos);
  loaded.reset();
  REQUIRE_FALSE(load(loaded, host, bytes));
  CHECK(state_graph(loaded, stated({0, 1}, {1, 2})).code() == Code::invalid_usage);
  CHECK_FALSE(state_graph(loaded, uneven_graph(3)));
  program.compressor(0).reset();
  CHECK_FALSE(program.compressor(0).gossip.graph);
}

TEST_CASE("gossip is CHOCO-SGD's definition", "[sparse][gossip]") {
  std::size_t turn = 0;
  const char* const keys[] = {"gamma=0.3", "gamma=0.5,graph=torus", "graph=complete,values=bf16",
                              "gamma=1,values=f16", "gamma=0.7,graph=stated"};
  for (const int ranks : {1, 2, 3, 4, 6, 9}) {
    for (const std::size_t count : {1, 17, 1000}) {
      const std::string spec = fmt::format("choco:density=0.1,{}", keys[turn++ % std::size(keys)]);
      INFO(spec << ", " << ranks << " ranks, " << count);
      SparseProgram program(case_of(spec, ranks, {count}));
      World world(world_of(program.sparse_case()));
      if (ranks == 4) world.set_order(RankOrder({2, 0, 3, 1}));
      state_graphs(program);
      ChocoReference reference(spec, ranks, count);
      program.draw(turn);
      for (int call = 0; call < 6; ++call) {
        const std::vector<Vector> expected = reference.step(parameters(program));
        REQUIRE(program.call_all(world) == "");
        for (int r = 0; r < ranks; ++r) {
          CHECK(program.compressor(r).gossip.own == reference.told(r));
          for (std::size_t i = 0; i < count; ++i) {
            const float off = std::fabs(program.result(r)[i] - expected[at(r)][i]);
            if (off > 2e-6f * (1 + std::fabs(expected[at(r)][i]))) FAIL("element " << i);
          }
        }
        go_on(program);
      }
      CHECK(world.leaks() == "");
    }
  }
}

TEST_CASE("gossip brings ranks nearer to each other, and keeps their mean", "[sparse][gossip]") {
  constexpr std::size_t count = 500;
  for (const char* keys :
       {"density=0.1,gamma=0.2", "density=0.1,gamma=0.2,graph=torus",
        "density=0.1,gamma=0.2,graph=complete,values=bf16", "density=0.2,gamma=0.4,graph=stated"}) {
    const std::string spec = fmt::format("choco:{}", keys);
    INFO(spec);
    SparseProgram program(case_of(spec, 8, {count}));
    World world(world_of(program.sparse_case()));
    state_graphs(program);
    program.draw(1);
    const std::vector<Vector> before = parameters(program);
    for (int call = 0; call < 300; ++call) {
      REQUIRE(program.call_all(world) == "");
      go_on(program);
    }
    const std::vector<Vector> after = parameters(program);
    CHECK(distance(after) < 0.05 * distance(before));
    for (std::size_t i = 0; i < count; ++i) {
      double moved = 0;
      for (int r = 0; r < 8; ++r) moved += (double(after[at(r)][i]) - before[at(r)][i]) / 8;
      if (std::fabs(moved) > 1e-5) FAIL("element " << i << " has moved by " << moved);
    }
    for (int r = 0; r < 8; ++r) {
      const GossipGraph graph = graph_of(spec, r, 8);
      for (std::size_t i = 0; i < count; ++i) {
        double known = 0;
        for (int k = 0; k < graph.degree(); ++k) {
          known += program.compressor(graph[k]).gossip.own[i] / double(graph.parts(k));
        }
        const double off = std::fabs(program.compressor(r).gossip.neighbours[i] - known);
        if (off > 1e-4) FAIL("rank " << r << ": another memory of element " << i);
      }
    }
  }
}

TEST_CASE("gossip of several tensors in one call is that of each", "[sparse][gossip]") {
  const std::string spec = "choco:density=0.05,gamma=0.3";
  SparseProgram together(case_of(spec, 3, {1000, 0, 70}));
  SparseProgram apart(case_of(spec, 3, {1000}));
  World world(world_of(together.sparse_case()));
  World other(world_of(apart.sparse_case()));
  together.draw(1);
  for (int r = 0; r < 3; ++r) apart.gradient(r) = together.gradient(r);
  REQUIRE(together.call_all(world) == "");
  REQUIRE(apart.call_all(other) == "");
  for (int r = 0; r < 3; ++r) CHECK(together.result(r) == apart.result(r));
}

TEST_CASE("gossip goes on from a saved state, and from before calls that are undone",
          "[sparse][gossip]") {
  const SparseCase c = case_of("choco:density=0.05,gamma=0.3,graph=stated", 4, {700});
  HostCompute host;
  SparseProgram first(c);
  SparseProgram second(c);
  state_graphs(first);
  state_graphs(second);
  World world(world_of(c));
  World other(world_of(c));
  first.draw(1);
  for (int call = 0; call < 3; ++call) REQUIRE(first.call_all(world) == "");
  for (int r = 0; r < c.ranks; ++r) {
    std::vector<std::byte> bytes(saved_bytes(first.compressor(r)));
    save(first.compressor(r), bytes.data());
    REQUIRE_FALSE(load(second.compressor(r), host, bytes));
    second.gradient(r) = first.gradient(r);
  }
  REQUIRE(first.call_all(world) == "");
  REQUIRE(second.call_all(other) == "");
  std::vector<Vector> results;
  for (int r = 0; r < c.ranks; ++r) {
    CHECK(first.result(r) == second.result(r));
    results.push_back(first.result(r));
    first.compressor(r).return_after(host, 3);
  }
  REQUIRE(first.call_all(world) == "");
  for (int r = 0; r < c.ranks; ++r) CHECK(first.result(r) == results[at(r)]);
}

TEST_CASE("a call that fails leaves gossip as it was before", "[sparse][gossip]") {
  const SparseCase c = case_of("choco:density=0.05,gamma=0.3", 5, {700});
  SparseProgram program(c);
  World world(world_of(c));
  program.draw(1);
  REQUIRE(program.call_all(world) == "");
  std::vector<GossipMemories> before;
  for (int r = 0; r < c.ranks; ++r) before.push_back(program.compressor(r).gossip);
  const std::vector<Error> errors = run_ranks(
      world, [&](Call& call, int r) { return r == 1 ? give_up(call) : program.start(call, r); });
  CHECK(errors[0]);  // waits for rank 1's list
  HostCompute host;
  for (const int r : {0, 2, 3, 4}) {
    if (!errors[at(r)]) program.compressor(r).return_after(host, 1);
    CHECK(program.compressor(r).gossip.own == before[at(r)].own);
    CHECK(program.compressor(r).gossip.neighbours == before[at(r)].neighbours);
  }
}

namespace {

// Survivors have their memories of before the call, which some have completed.
bool interrupt_gossip(const SparseCase& c, int calls_before, const Interruption& where,
                      std::string& failure) {
  SparseProgram program(c);
  state_graphs(program);
  World world(world_of(c));
  program.draw(1);
  for (int call = 0; call < calls_before; ++call) failure += program.call_all(world);
  std::vector<GossipMemories> before;
  for (int r = 0; r < c.ranks; ++r) before.push_back(program.compressor(r).gossip);
  const auto [reached, errors] = interrupt_call(program, world, where);
  HostCompute host;
  for (int r = 0; r < c.ranks && failure.empty(); ++r) {
    if (!world.ended(r)) failure = fmt::format("rank {} never ends", r);
    if (errors[at(r)].code() == Code::internal) failure = errors[at(r)].message();
    if (!where.survived_by(r)) continue;
    Compressor& own = program.compressor(r);
    if (!errors[at(r)]) own.return_after(host, static_cast<std::uint32_t>(calls_before));
    if (own.gossip.own == before[at(r)].own && own.gossip.neighbours == before[at(r)].neighbours) {
      continue;
    }
    failure = fmt::format("rank {}: another memory", r);
  }
  failure += world.leaks();
  return reached;
}

}  // namespace

TEST_CASE("gossip of many ranks, whose messages come in any order", "[sparse][gossip]") {
  const int ranks = full && !sanitized ? 256 : 40;
  for (const char* keys :
       {"gamma=0.3", "gamma=0.5,graph=torus", "graph=complete", "gamma=0.5,graph=stated"}) {
    SparseCase c = case_of(fmt::format("choco:density=0.05,{}", keys), ranks, {1000});
    c.jitter_s = 1e-3;
    INFO(describe(c));
    SparseProgram program(c);
    state_graphs(program);
    World world(world_of(c));
    ChocoReference reference(c.spec, ranks, c.counts[0]);
    program.draw(1);
    for (int call = 0; call < 2; ++call) {
      reference.step(parameters(program));
      REQUIRE(program.call_all(world) == "");
      for (int r = 0; r < ranks; ++r) CHECK(program.compressor(r).gossip.own == reference.told(r));
      go_on(program);
    }
    const std::uint64_t steps = steps_of_call(program, world);
    CHECK(interrupt_everywhere(c, 1, steps / 3 + 1, interrupt_gossip) == "");
  }
}

}  // namespace pith::test
