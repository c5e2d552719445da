// The hierarchical allreduce on hosts with several ranks. On hosts with one it is an algorithm like
// others, which the tests with the tag [conformance] see.
#include "tests/catch.hpp"
#include "tests/collectives/dense_program.hpp"

namespace pith::test {

namespace {

constexpr std::size_t kib = 1024;

std::string run_on(const std::vector<int>& hosts, DenseCase c, SimConfig config = {}) {
  c.algorithm = find_algorithm(Collective::allreduce, "hierarchical");
  c.ranks = static_cast<int>(hosts.size());
  config.ranks = c.ranks;
  World world(std::move(config));
  if (c.order != 0) world.set_order(random_order(c.ranks, c.order));
  world.set_hosts(hosts);
  const std::string failure = run_in(world, c);
  return failure.empty() ? failure : describe(c) + ": " + failure;
}

std::vector<int> even_hosts(int hosts, int ranks, bool in_turns) {
  std::vector<int> names;
  for (int r = 0; r < hosts * ranks; ++r) names.push_back(in_turns ? r % hosts : r / ranks);
  return names;
}

}  // namespace

// Counts about those from which on there are slices (4096 bytes for each rank), and with a rest.
TEST_CASE("a hierarchical sum is the sum", "[hierarchical]") {
  for (const auto& [hosts, ranks] : {std::pair{2, 2}, {2, 3}, {3, 2}, {4, 4}, {2, 5}}) {
    const std::size_t least = 4096 / 4 * static_cast<std::size_t>(ranks);
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, least - 1, least, least + 1,
                                    3 * least + static_cast<std::size_t>(ranks) - 1}) {
      for (const bool in_turns : {false, true}) {
        DenseCase c;
        c.count = count;
        c.type = DType::i32;
        c.tuning = {4096, 2};
        c.in_place = in_turns;
        CHECK(run_on(even_hosts(hosts, ranks, in_turns), c) == "");
        c.order = 7;
        c.tuning.start_bytes = 1000;  // a ring between hosts
        c.in_place = !in_turns;
        CHECK(run_on(even_hosts(hosts, ranks, in_turns), c) == "");
      }
    }
  }
}

TEST_CASE("a hierarchical average divides once, by all ranks", "[hierarchical]") {
  for (const DType type : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i64}) {
    for (const Op op : {Op::avg, Op::max, Op::prod}) {
      DenseCase c;
      c.count = 9000;
      c.type = type;
      c.op = op;
      c.tuning = {4096, 2};
      CHECK(run_on(even_hosts(2, 3, false), c) == "");
      c.premultiplied = op == Op::avg;
      if (c.premultiplied) c.op = Op::sum;
      CHECK(run_on(even_hosts(2, 3, false), c) == "");
    }
  }
}

TEST_CASE("hosts that do not have as many ranks, one host, and hosts with a rank each",
          "[hierarchical]") {
  for (const auto& hosts : {std::vector<int>{0, 0, 0, 1, 1}, std::vector<int>{0, 1, 1, 1},
                            std::vector<int>{0, 0, 0}, std::vector<int>{0, 1, 2}}) {
    DenseCase c;
    c.count = 10'000;
    c.type = DType::u32;
    CHECK(run_on(hosts, c) == "");
  }
}

TEST_CASE("more ranks of a host than may use views", "[hierarchical]") {
  DenseCase c;
  c.count = 34 * 1024;
  c.type = DType::u32;
  c.tuning = {4096, 2};
  CHECK(run_on(even_hosts(2, 33, false), c) == "");
}

}  // namespace pith::test
