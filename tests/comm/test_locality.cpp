// Where ranks run, on machines that hwloc makes up, and the order that follows.
#include <cstdlib>
#include <string>
#include <vector>

#include "startup/locality.hpp"
#include "startup/topology.hpp"
#include "tests/catch.hpp"

namespace pith::test {

namespace {

// hwloc reads this machine instead while it lives.
class MadeUp {
 public:
  explicit MadeUp(const char* machine) { setenv("HWLOC_SYNTHETIC", machine, 1); }
  ~MadeUp() { unsetenv("HWLOC_SYNTHETIC"); }
  MadeUp(const MadeUp&) = delete;
  MadeUp& operator=(const MadeUp&) = delete;
};

constexpr const char* two_packages = "package:2 numa:2 l3:2 core:2 pu:2";  // 32 CPUs

std::vector<int> places(const RankOrder& order, int ranks) {
  std::vector<int> at;
  for (int place = 0; place < ranks; ++place) at.push_back(order.rank_at(place));
  return at;
}

Locality on(const std::string& host, int package, int numa_node, int cache, int core) {
  return {host, package, numa_node, cache, core};
}

}  // namespace

#ifdef PITH_HWLOC
TEST_CASE("a bound rank knows its core, cache, node and package", "[locality]") {
  const MadeUp machine(two_packages);
  const Topology topology;
  const Locality at = topology.locate(std::vector{21});
  CHECK(at.package == 16);
  CHECK(at.numa_node == 16);
  CHECK(at.cache == 20);
  CHECK(at.core == 20);
  CHECK(at.host == boot_id());
  CHECK(topology.locate(std::vector{20}).core == 20);  // the core's other thread
  CHECK(topology.locate(std::vector{9}).numa_node == 8);
}

TEST_CASE("only what holds all of a rank's CPUs is certain", "[locality]") {
  const MadeUp machine(two_packages);
  const Topology topology;
  const Locality in_package = topology.locate(std::vector{0, 9});
  CHECK(in_package.package == 0);
  CHECK(in_package.numa_node == Locality::unknown);
  CHECK(in_package.cache == Locality::unknown);
  CHECK(in_package.core == Locality::unknown);
  const Locality in_cache = topology.locate(std::vector{4, 6});
  CHECK(in_cache.cache == 4);
  CHECK(in_cache.core == Locality::unknown);
  CHECK(topology.locate(std::vector{0, 16}).package == Locality::unknown);
  CHECK(topology.locate({}).package == Locality::unknown);
}

TEST_CASE("ranks dealt round over packages are walked package by package", "[locality]") {
  const MadeUp machine(two_packages);
  const Topology topology;
  std::vector<Locality> ranks;
  for (const int cpu : {0, 16, 8, 24, 2, 18, 10, 26}) {
    ranks.push_back(topology.locate(std::vector{cpu}));
  }
  RankGroups one(ranks.size());
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) one.join(0, rank);
  CHECK(places(order_by_locality(ranks, one), 8) == std::vector{0, 4, 2, 6, 1, 5, 3, 7});
}

// Hidden: needs a library path without hwloc.
TEST_CASE("without hwloc the host alone is known", "[.][without-hwloc]") {
  const MadeUp machine(two_packages);
  for (const Locality& at : {own_locality(), Topology().locate(std::vector{21})}) {
    CHECK(at.host == boot_id());
    CHECK(at.package == Locality::unknown);
    CHECK(at.core == Locality::unknown);
  }
}
#endif

TEST_CASE("this machine can be read", "[locality]") { CHECK(own_locality().host == boot_id()); }

TEST_CASE("a locality survives its way to the others", "[locality]") {
  const Locality sent = on("host", 4, 3, 2, 1);
  const Locality came = Locality::unpack(sent.pack());
  CHECK(came.host == "host");
  CHECK(came.package == 4);
  CHECK(came.numa_node == 3);
  CHECK(came.cache == 2);
  CHECK(came.core == 1);
  CHECK(Locality::unpack(sent.pack().substr(0, 9)).package == Locality::unknown);
  CHECK(Locality::unpack("").host.empty());
}

TEST_CASE("hosts come in the order of their lowest ranks", "[locality]") {
  std::vector<Locality> ranks;
  for (int rank = 0; rank < 7; ++rank) {
    ranks.push_back(on(rank % 2 == 0 ? "zebra" : "ape", 0, 0, 0, -1));
  }
  RankGroups groups(ranks.size());
  for (std::size_t rank = 2; rank < ranks.size(); ++rank) groups.join(rank % 2, rank);
  CHECK(places(order_by_locality(ranks, groups), 7) == std::vector{0, 2, 4, 6, 1, 3, 5});
}

TEST_CASE("under one kernel those that reach each other stay together", "[locality]") {
  const std::vector<Locality> ranks{on("k", 0, 0, 0, 0), on("k", 0, 0, 0, 1), on("k", 1, 1, 1, 2),
                                    on("k", 1, 1, 1, 3)};
  RankGroups groups(ranks.size());
  groups.join(0, 2);
  groups.join(3, 1);
  CHECK(places(order_by_locality(ranks, groups), 4) == std::vector{0, 2, 1, 3});
  RankGroups one(ranks.size());
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) one.join(rank, rank - 1);
  CHECK(order_by_locality(ranks, one).by_rank());
}

TEST_CASE("ranks of which nothing is known stay in their order", "[locality]") {
  const std::vector<Locality> ranks(5);
  CHECK(order_by_locality(ranks, RankGroups(5)).by_rank());
  RankGroups groups(5);
  groups.join(4, 0);
  CHECK(places(order_by_locality(ranks, groups), 5) == std::vector{0, 4, 1, 2, 3});
}

TEST_CASE("groups join in any order", "[locality]") {
  RankGroups groups(9);
  groups.join(8, 7);
  groups.join(6, 5);
  groups.join(7, 5);
  groups.join(6, 2);
  for (const std::size_t rank : {2U, 5U, 6U, 7U, 8U}) CHECK(groups.group_of(rank) == 2);
  for (const std::size_t rank : {0U, 1U, 3U, 4U}) CHECK(groups.group_of(rank) == rank);
}

}  // namespace pith::test
