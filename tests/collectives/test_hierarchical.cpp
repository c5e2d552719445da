// The hierarchical algorithms on hosts with several ranks. On hosts with one they are algorithms
// like others, which the tests with the tag [conformance] see.
#include <algorithm>
#include <array>
#include <numeric>

#include <fmt/format.h>

#include "tests/catch.hpp"
#include "tests/collectives/dense_program.hpp"
#include "tests/collectives/pairwise.hpp"

namespace pith::test {

namespace {

constexpr std::size_t kib = 1024;

DenseCase on_hosts(Collective collective, std::vector<int> hosts) {
  DenseCase c;
  c.algorithm = find_algorithm(collective, "hierarchical");
  c.ranks = static_cast<int>(hosts.size());
  c.hosts = std::move(hosts);
  return c;
}

std::string run_on_hosts(const DenseCase& c, const SimConfig& config = {}) {
  return run_case(c, config, "[hierarchical]");
}

std::vector<int> even_hosts(int hosts, int ranks, bool in_turns) {
  std::vector<int> names;
  for (int r = 0; r < hosts * ranks; ++r) names.push_back(in_turns ? r % hosts : r / ranks);
  return names;
}

// Even, uneven, in turns, with hosts of one rank, one host, and hosts of one rank each.
const std::vector<std::vector<int>> layouts{{0, 0, 1, 1},
                                            {0, 0, 0, 1, 2, 2},
                                            {0, 1, 2, 0, 1, 2},
                                            {2, 0, 1, 0, 0, 1},
                                            {0, 1, 1, 1},
                                            {0, 1, 0},
                                            {0, 0, 0, 0},
                                            {0, 1, 2},
                                            {3, 1, 1, 0, 2, 0, 1, 1, 0, 4, 1},
                                            {0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1},
                                            {0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6}};

std::vector<Collective> hierarchical_collectives() {
  std::vector<Collective> all;
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.name == "hierarchical") all.push_back(algorithm.collective);
  }
  return all;
}

// In such chunks alltoall sends what a rank has for a host as one message.
std::size_t bytes_for_a_host(const DenseCase& c) {
  const Hosts hosts{std::span<const int>(c.hosts)};
  const std::size_t blocks = c.count * static_cast<std::size_t>(hosts.most_ranks());
  return std::max<std::size_t>(1, blocks * size_of(c.type));
}

constexpr std::array<std::size_t, 8> counts{0, 1, 7, 8, 9, 33, 64, 200};

}  // namespace

TEST_CASE("hierarchical algorithms compute what the reference does", "[hierarchical]") {
  const std::array sizes{static_cast<int>(layouts.size()),
                         static_cast<int>(counts.size()),
                         dtype_count,
                         op_count,
                         2,
                         2,
                         4,
                         3};
  std::uint64_t seed = 0;
  for (const Collective collective : hierarchical_collectives()) {
    if (collective == Collective::barrier) continue;
    for (const Combination& v : pairwise(sizes)) {
      DenseCase c = on_hosts(collective, layouts[static_cast<std::size_t>(v[0])]);
      c.count = counts[static_cast<std::size_t>(v[1])];
      c.type = static_cast<DType>(v[2]);
      c.op = possible_op(collective, c.type, static_cast<Op>(v[3]));
      c.in_place = v[4] == 1;
      c.seed = ++seed;
      c.order = v[5] == 0 ? 0 : seed;
      c.premultiplied = reduces(collective) && c.op == Op::sum && seed % 3 == 0;
      c.root = static_cast<int>(seed % static_cast<std::uint64_t>(c.ranks));
      c.tuning = {64, 1 + v[6], 0, v[6] % 2 == 0 ? 10.0 : 1e5};
      const bool joins = collective == Collective::alltoall && seed % 5 != 0;
      if (joins) c.tuning.chunk_bytes = bytes_for_a_host(c) * (1 + seed % 2);
      CHECK(run_on_hosts(c, simulator(static_cast<std::uint64_t>(v[7]))) == "");
    }
  }
}

TEST_CASE("hierarchical algorithms have every root", "[hierarchical]") {
  std::uint64_t seed = 0;
  for (const Collective collective : hierarchical_collectives()) {
    if (!has_root(collective)) continue;
    for (const std::vector<int>& hosts : layouts) {
      DenseCase c = on_hosts(collective, hosts);
      for (c.root = 0; c.root < c.ranks; ++c.root) {
        c.seed = ++seed;
        c.count = seed % 50;
        c.in_place = seed % 2 == 0;
        c.order = seed % 3 == 0 ? seed : 0;
        c.tuning = {64, 2, 0, seed % 4 < 2 ? 10.0 : 1e5};
        CHECK(run_on_hosts(c, simulator(seed)) == "");
      }
    }
  }
}

// Counts about those from which on there are slices (4096 bytes for each rank), and with a rest.
TEST_CASE("a hierarchical sum is the sum", "[hierarchical]") {
  for (const auto& [hosts, ranks] : {std::pair{2, 2}, {2, 3}, {3, 2}, {4, 4}, {2, 5}}) {
    const std::size_t least = 4096 / 4 * static_cast<std::size_t>(ranks);
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, least - 1, least, least + 1,
                                    3 * least + static_cast<std::size_t>(ranks) - 1}) {
      for (const bool in_turns : {false, true}) {
        DenseCase c = on_hosts(Collective::allreduce, even_hosts(hosts, ranks, in_turns));
        c.count = count;
        c.type = DType::i32;
        c.tuning = {4096, 2};
        c.in_place = in_turns;
        CHECK(run_on_hosts(c) == "");
        c.order = 7;
        c.tuning.start_bytes = 1000;  // a ring between hosts
        c.in_place = !in_turns;
        CHECK(run_on_hosts(c) == "");
      }
    }
  }
}

TEST_CASE("a hierarchical average divides once, by all ranks", "[hierarchical]") {
  for (const DType type : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i64}) {
    for (const Op op : {Op::avg, Op::max, Op::prod}) {
      DenseCase c = on_hosts(Collective::allreduce, even_hosts(2, 3, false));
      c.count = 9000;
      c.type = type;
      c.op = op;
      c.tuning = {4096, 2};
      CHECK(run_on_hosts(c) == "");
      c.premultiplied = op == Op::avg;
      if (c.premultiplied) c.op = Op::sum;
      CHECK(run_on_hosts(c) == "");
    }
  }
}

TEST_CASE("a sum of hosts that do not have as many ranks, of one host, and of a rank each",
          "[hierarchical]") {
  for (const auto& hosts : {std::vector<int>{0, 0, 0, 1, 1}, std::vector<int>{0, 1, 1, 1},
                            std::vector<int>{0, 0, 0}, std::vector<int>{0, 1, 2}}) {
    DenseCase c = on_hosts(Collective::allreduce, hosts);
    c.count = 10'000;
    c.type = DType::u32;
    CHECK(run_on_hosts(c) == "");
  }
}

TEST_CASE("more ranks of a host than may use views", "[hierarchical]") {
  for (const Collective collective : hierarchical_collectives()) {
    if (collective == Collective::barrier) continue;
    DenseCase c = on_hosts(collective, even_hosts(2, 33, false));
    c.count = collective == Collective::allreduce ? 34 * kib : 600;
    c.type = DType::u32;
    c.tuning = {collective == Collective::alltoall ? bytes_for_a_host(c) : 4096, 2};
    CHECK(run_on_hosts(c) == "");
  }
}

TEST_CASE("an abort at any step of a hierarchical algorithm", "[hierarchical][abort]") {
  for (const Collective collective : hierarchical_collectives()) {
    std::uint64_t points = 0;
    for (const std::vector<int>& hosts :
         {std::vector<int>{0, 0, 1, 1}, {0, 1, 1, 2}, {0, 1, 0, 1, 0}}) {
      for (int which = 0; which < 4; ++which) {
        DenseCase c = on_hosts(collective, hosts);
        c.count = collective == Collective::allreduce ? 2100 : 21;
        c.tuning = {collective == Collective::allreduce ? std::size_t{4096} : 32, 2};
        if (collective == Collective::alltoall) {
          c.count = 3;
          c.tuning.chunk_bytes = bytes_for_a_host(c);
        }
        c.root = which % c.ranks;
        c.in_place = which >= 2;
        c.op = possible_op(collective, c.type, which % 2 == 0 ? Op::sum : Op::avg);
        SimConfig config = simulator(static_cast<std::uint64_t>(which));
        config.ranks = c.ranks;
        if (which >= 2 && collective != Collective::allreduce) config.wire_bytes = 150;
        const auto make = [&]() -> std::unique_ptr<Program> {
          return std::make_unique<DenseProgram>(c);
        };
        AbortOptions options;
        options.hosts = c.hosts;
        options.stride = sanitized ? 5 : 1;
        const AbortReport report = inject_aborts(config, make, options);
        INFO(describe(c));
        CHECK(report.failure == "");
        points += report.points;
      }
    }
    INFO(name_of(collective));
    CHECK(points > 50);
  }
}

namespace {

struct Traffic {
  double seconds = 0;
  std::uint64_t most = 0;                  // bytes that one host sends to others
  std::uint64_t all = 0;                   // that all of them send
  std::uint64_t messages = 0;              // between hosts
  std::uint64_t most_messages_a_rank = 0;  // that one rank sends of these
};

// Hosts that share a port each: inside them messages take no time.
Traffic traffic_of(const Algorithm& algorithm, const std::vector<int>& hosts, std::size_t bytes,
                   int root = 0) {
  DenseCase c;
  c.root = root;
  c.algorithm = &algorithm;
  c.ranks = static_cast<int>(hosts.size());
  c.hosts = hosts;
  c.count = bytes;
  c.type = DType::u8;
  c.tuning = {4096, 4, 0, 1000};
  SimConfig config;
  config.ranks = c.ranks;
  config.link_of = [&](int from, int to) {
    return hosts[std::size_t(from)] == hosts[std::size_t(to)] ? SimLink{1e-9, 0}
                                                              : SimLink{1e-6, 1e-9};
  };
  config.uplink_of = [&](int rank) {
    const auto first = std::ranges::find(hosts, hosts[std::size_t(rank)]);
    return static_cast<int>(first - hosts.begin());
  };
  World world(config);
  set_places(world, c);
  world.record(4096);
  DenseProgram program(c);
  auto task = [&](Call& call, int rank) { return program.start(call, rank); };
  for (const Error& error : run_ranks(world, task)) REQUIRE(!error);
  REQUIRE(program.check() == "");
  Traffic found;
  found.seconds = world.elapsed_s();
  std::array<std::uint64_t, 16> sent{};
  for (int rank = 0; rank < c.ranks; ++rank) {
    std::uint64_t messages = 0;
    for (const Step& step : world.recorder(rank).steps()) {
      const int host = hosts[std::size_t(rank)];
      if (step.op != Step::Op::send || host == hosts[std::size_t(step.peer)]) continue;
      sent[std::size_t(host)] += step.bytes;
      ++messages;
    }
    found.messages += messages;
    found.most_messages_a_rank = std::max(found.most_messages_a_rank, messages);
  }
  found.most = *std::ranges::max_element(sent);
  found.all = std::accumulate(sent.begin(), sent.end(), std::uint64_t{0});
  return found;
}

}  // namespace

TEST_CASE("blocks cross to another host once", "[hierarchical]") {
  constexpr std::size_t bytes = 64 * kib;
  struct Layout {
    std::vector<int> hosts;
    std::uint64_t blocks;  // that its busiest host passes on
  };
  const std::vector<Layout> all{{{0, 0, 1, 1}, 2},
                                {{0, 0, 0, 0, 1, 1, 1, 1}, 4},
                                {{0, 0, 1, 1, 2, 2}, 4},
                                {{0, 0, 0, 1, 1, 2, 2}, 5}};
  for (const Collective collective : {Collective::allgather, Collective::reduce_scatter}) {
    for (const Layout& layout : all) {
      const auto ranks = layout.hosts.size();
      const Traffic by_host =
          traffic_of(*find_algorithm(collective, "hierarchical"), layout.hosts, bytes);
      const Traffic by_ring = traffic_of(*find_algorithm(collective, "ring"), layout.hosts, bytes);
      INFO(name_of(collective) << describe_hosts(layout.hosts));
      CHECK(by_host.most == layout.blocks * bytes);
      CHECK(by_ring.most == (ranks - 1) * bytes);
      CHECK(by_host.seconds < by_ring.seconds);
    }
  }
}

TEST_CASE("a vector crosses to each other host once", "[hierarchical]") {
  for (const Collective collective : {Collective::broadcast, Collective::reduce}) {
    for (const std::size_t bytes : {3 * kib, 256 * kib}) {  // by a tree, and by a chain of hosts
      for (const std::vector<int>& hosts : layouts) {
        const Hosts layout{std::span<const int>(hosts)};
        if (!layout.share_ranks()) continue;
        for (const int root : {0, static_cast<int>(hosts.size()) - 1}) {
          const Traffic by_host =
              traffic_of(*find_algorithm(collective, "hierarchical"), hosts, bytes, root);
          INFO(name_of(collective) << " of " << bytes << describe_hosts(hosts));
          CHECK(by_host.all == static_cast<std::size_t>(layout.count() - 1) * bytes);
          if (bytes > 128 * kib) CHECK(by_host.most == bytes);
        }
      }
    }
  }
}

TEST_CASE("what a rank has for a host crosses to it in one message", "[hierarchical]") {
  constexpr std::size_t bytes = 500;  // chunks have 4096
  const Algorithm& by_hosts = *find_algorithm(Collective::alltoall, "hierarchical");
  const Algorithm& pairwise = *find_algorithm(Collective::alltoall, "pairwise");
  for (const std::vector<int>& hosts : layouts) {
    const Hosts layout{std::span<const int>(hosts)};
    if (!layout.share_ranks()) continue;
    const Traffic joined = traffic_of(by_hosts, hosts, bytes);
    const Traffic flat = traffic_of(pairwise, hosts, bytes);
    const auto others = static_cast<std::size_t>(layout.count() - 1);
    INFO(describe_hosts(hosts));
    CHECK(joined.messages == hosts.size() * others);
    CHECK(joined.most_messages_a_rank == others);
    CHECK(joined.all == flat.all);
    CHECK(joined.most == flat.most);
    CHECK(flat.messages * bytes == flat.all);
    const Traffic longer = traffic_of(by_hosts, hosts, 4097);  // more than a chunk
    CHECK(longer.messages == 2 * flat.messages);
  }
}

TEST_CASE("an alltoall by hosts takes what its cost says", "[hierarchical]") {
  const Algorithm& algorithm = *find_algorithm(Collective::alltoall, "hierarchical");
  for (const auto& [hosts, ranks] : {std::pair{2, 2}, {4, 4}, {3, 5}}) {
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{800}}) {
      const Shape shape{.ranks = hosts * ranks,
                        .bytes = bytes,
                        .tuning = {4096, 4},
                        .hosts = hosts,
                        .ranks_a_host = ranks};
      const double promised = algorithm.cost(shape, {1e-6, 1e-9 * ranks, 0, 0});
      INFO(hosts << " hosts of " << ranks << ", " << bytes << " bytes");
      CHECK(traffic_of(algorithm, even_hosts(hosts, ranks, false), bytes).seconds ==
            Approx(promised).epsilon(0.05));
    }
  }
}

namespace {

// Seconds of a barrier that the rank `last` enters after a millisecond. Nobody may leave earlier.
double barrier_seconds(const char* name, const std::vector<int>& hosts, int last) {
  const Algorithm& barrier = *find_algorithm(Collective::barrier, name);
  SimConfig config;
  config.ranks = static_cast<int>(hosts.size());
  config.link_of = [&](int from, int to) {
    return hosts[std::size_t(from)] == hosts[std::size_t(to)] ? SimLink{1e-9, 0}
                                                              : SimLink{1e-6, 1e-9};
  };
  World world(config);
  world.set_hosts(hosts);
  world.start_s = [last](int rank) { return rank == last ? 1e-3 : 1e-6 * rank; };
  auto task = [&](Call& call, int) { return barrier.run(call, {}); };
  for (const Error& error : run_ranks(world, task)) REQUIRE(!error);
  for (int rank = 0; rank < config.ranks; ++rank) REQUIRE(world.ended_s(rank) >= 1e-3);
  REQUIRE(world.leaks() == "");
  return world.elapsed_s() - 1e-3;
}

}  // namespace

TEST_CASE("nobody leaves a barrier by hosts before everybody has come", "[hierarchical]") {
  for (const std::vector<int>& hosts : layouts) {
    for (int last = 0; last < static_cast<int>(hosts.size()); ++last) {
      INFO(describe_hosts(hosts) << ", rank " << last << " is the last");
      barrier_seconds("hierarchical", hosts, last);
    }
  }
}

TEST_CASE("a barrier by hosts takes as many rounds as one of a rank each", "[hierarchical]") {
  for (const auto& [hosts, ranks] : {std::pair{2, 4}, {4, 4}, {3, 5}}) {
    const double seconds = barrier_seconds("hierarchical", even_hosts(hosts, ranks, false), 1);
    CHECK(seconds == Approx(1e-6 * ceil_log2(hosts)).epsilon(0.05));
  }
}

TEST_CASE("a reduction by hosts takes half as long as one by ranks", "[hierarchical]") {
  for (const auto& hosts : {even_hosts(2, 2, false), even_hosts(4, 4, false)}) {
    const auto seconds = [&](const char* name) {
      return traffic_of(*find_algorithm(Collective::reduce, name), hosts, 512 * kib).seconds;
    };
    CHECK(seconds("hierarchical") < 0.6 * seconds("tree"));
  }
}

}  // namespace pith::test
