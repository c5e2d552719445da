// Which algorithm is taken where no ranks share memory, by what a message costs.
#include "model/cheapest.hpp"

#include <array>

#include "collectives/registry.hpp"
#include "model/model.hpp"
#include "model/nominal.hpp"
#include "model/rules.hpp"
#include "tests/catch.hpp"

namespace pith::test {

namespace {

constexpr std::size_t kib = 1024;

std::string_view taken(const Model& model, Collective collective, std::size_t bytes) {
  return model.algorithm(collective, bytes).name;
}

// A link of 1 Gbit/s across 20 ms.
constexpr LinkCost far{20e-3, 8e-9, 0.2e-9, 10e-6};

}  // namespace

TEST_CASE("far links take the fewest rounds", "[cheapest]") {
  const auto on = [](const LinkCost& link, Collective collective, int ranks, std::size_t bytes) {
    return cheapest_algorithm({.ranks = ranks, .bytes = bytes, .tuning = {}}, collective, link)
        .name;
  };
  CHECK(on(nominal::wire, Collective::allreduce, 8, kib) == "recursive_doubling");
  CHECK(on(far, Collective::allreduce, 8, kib) == "direct");
  CHECK(on(far, Collective::allreduce, 8, 1024 * kib) == "two_shot");
  CHECK(on(far, Collective::allreduce, 64, 4096 * kib) == "double_tree");  // two_shot serves 32
  CHECK(on(nominal::wire, Collective::allgather, 8, 32 * kib) == "bruck");
  CHECK(on(far, Collective::allgather, 8, 64 * kib) == "views");
  CHECK(on(far, Collective::reduce_scatter, 8, 64 * kib) == "views");
  CHECK(on(far, Collective::reduce_scatter, 64, kib) == "recursive_halving");
  CHECK(on(far, Collective::broadcast, 8, 256 * kib) == "binomial");
  // Messages as long as the vector only while that is no longer than what is in flight otherwise.
  CHECK(on(far, Collective::broadcast, 8, 512 * kib) == "chain");
  CHECK(on(far, Collective::allreduce, 2, 512 * kib) == "ring");
}

TEST_CASE("broadcasts over views are their own only where ranks share memory", "[cheapest]") {
  const Algorithm& views = *find_algorithm(Collective::broadcast, "views");
  Shape shape{.ranks = 4, .bytes = kib, .tuning = {}};
  CHECK(!serves(views, shape));
  shape.views = true;
  CHECK(serves(views, shape));
}

TEST_CASE("the one that costs least is taken, and the rule's if none costs less", "[cheapest]") {
  for (const int ranks : {2, 3, 4, 8, 16, 33}) {
    for (std::size_t bytes = 1; bytes <= std::size_t{64} << 20; bytes *= 2) {
      const Shape shape{.ranks = ranks, .bytes = bytes, .tuning = {}};
      for (const LinkCost& link : {nominal::wire, far}) {
        const Algorithm& rule = default_algorithm(shape, Collective::allreduce);
        const Algorithm& found = cheapest_algorithm(shape, Collective::allreduce, link);
        double least = cost_on(link, rule, shape);
        for (const Algorithm& one : algorithms()) {
          if (one.collective != Collective::allreduce || !serves(one, shape)) continue;
          least = std::min(least, cost_on(link, one, shape));
        }
        const bool rule_is_near = least >= 0.98 * cost_on(link, rule, shape);
        REQUIRE((&found == &rule) == rule_is_near);
        if (!rule_is_near) REQUIRE(cost_on(link, found, shape) == least);
      }
    }
  }
}

TEST_CASE("ranks of a host share its port, and many senders overflow one", "[cheapest]") {
  const LinkCost only_bytes{0, 1e-9, 0, 0};
  const auto times = [&](std::string_view name, const Shape& shape) {
    const Algorithm& one = *find_algorithm(Collective::allreduce, name);
    return cost_on(only_bytes, one, shape) / one.cost(shape, only_bytes);
  };
  Shape shape{.ranks = 4, .bytes = 512 * kib, .tuning = {}, .hosts = 2, .ranks_a_host = 2};
  CHECK(times("ring", shape) == Approx(1));
  CHECK(times("rabenseifner", shape) == Approx(2));
  CHECK(times("two_shot", shape) == Approx(2 * 2.0 / 3 * 1.2));  // one of three peers is near
  shape.bytes = 4 * 64 * kib - 8;
  CHECK(times("two_shot", shape) == Approx(2 * 2.0 / 3));
  shape.bytes = 1024 * kib;
  CHECK(times("ring", shape) == Approx(1));
  CHECK(times("rabenseifner", shape) == Approx(2 * 1.2));
  CHECK(times("hierarchical", shape) == Approx(2));
  shape.hosts = 1;
  CHECK(times("rabenseifner", shape) == Approx(1));
  Shape pair{.ranks = 2, .bytes = 1024 * kib, .tuning = {}, .hosts = 2};
  CHECK(times("two_shot", pair) == Approx(1));
}

TEST_CASE("where many hosts send to one port, some calls wait for lost packets", "[cheapest]") {
  const auto waits = [&](Collective collective, std::string_view name, int ranks,
                         std::size_t bytes) {
    const Shape shape{.ranks = ranks, .bytes = bytes, .tuning = {}, .hosts = ranks};
    const Algorithm& one = *find_algorithm(collective, name);
    return mean_timeout(one, shape) > 0;
  };
  CHECK(waits(Collective::reduce_scatter, "views", 8, 128 * kib));
  CHECK(waits(Collective::allgather, "views", 8, 128 * kib));
  CHECK(waits(Collective::allreduce, "two_shot", 8, 512 * kib));
  CHECK_FALSE(waits(Collective::allreduce, "two_shot", 8, 256 * kib));
  CHECK_FALSE(waits(Collective::reduce_scatter, "views", 8, 64 * kib));
  CHECK_FALSE(waits(Collective::allreduce, "two_shot", 4, 4096 * kib));
  CHECK_FALSE(waits(Collective::allreduce, "ring", 8, 4096 * kib));
  CHECK(waits(Collective::allreduce, "direct", 8, 128 * kib));
  const Algorithm& two_shot = *find_algorithm(Collective::allreduce, "two_shot");
  Shape shape{.ranks = 8, .bytes = 4096 * kib, .tuning = {}, .hosts = 4, .ranks_a_host = 2};
  CHECK(mean_timeout(two_shot, shape) == 0);  // 4 hosts
  shape.ranks = 16;
  shape.hosts = 8;
  CHECK(mean_timeout(two_shot, shape) > 0);
  const LinkCost link = link_with(20e-6, 0.8e-9);
  shape = {.ranks = 8, .bytes = 1024 * kib, .tuning = {}, .hosts = 8};
  CHECK(cheapest_algorithm(shape, Collective::reduce_scatter, link).name == "ring");
}

TEST_CASE("hosts with several ranks each send one sum", "[cheapest]") {
  Model model(8);
  CHECK(taken(model, Collective::allreduce, 1024 * kib) == "rabenseifner");
  model.set_hosts(2, 4);
  CHECK(taken(model, Collective::allreduce, kib) == "hierarchical");
  CHECK(taken(model, Collective::allreduce, 1024 * kib) == "hierarchical");
  for (const auto& [hosts, ranks] : {std::pair{2, 5}, {8, 1}, {1, 8}}) {  // uneven; no need
    model.set_hosts(hosts, ranks);
    CHECK(taken(model, Collective::allreduce, 1024 * kib) != "hierarchical");
  }
  model.set_hosts(2, 4, false);  // messages inside hosts would cost as much
  CHECK(taken(model, Collective::allreduce, 1024 * kib) != "hierarchical");
}

TEST_CASE("hosts that do not have as many ranks get each block once", "[cheapest]") {
  constexpr std::array by_hosts{Collective::allgather, Collective::reduce_scatter,
                                Collective::broadcast, Collective::reduce};
  Model model(8);
  for (const auto& [hosts, ranks] : {std::pair{2, 4}, {2, 5}, {3, 3}}) {
    model.set_hosts(hosts, ranks);
    for (const Collective collective : by_hosts) {
      INFO(name_of(collective) << ", " << hosts << " hosts of up to " << ranks);
      CHECK(taken(model, collective, 1024 * kib) == "hierarchical");
    }
  }
  const auto seconds = [&](int hosts, int ranks) {
    model.set_hosts(hosts, ranks);
    return model.cost(*find_algorithm(Collective::allgather, "hierarchical"), 1024 * kib);
  };
  CHECK(seconds(4, 4) > 2 * seconds(2, 4));  // three rounds for one
}

TEST_CASE("hosts with several ranks join short blocks, and meet in a barrier", "[cheapest]") {
  Model model(16);
  CHECK(taken(model, Collective::alltoall, kib) == "pairwise");
  CHECK(taken(model, Collective::barrier, 0) == "dissemination");
  for (const auto& [hosts, ranks] : {std::pair{4, 4}, {4, 6}}) {  // even, and not
    model.set_hosts(hosts, ranks);
    CHECK(taken(model, Collective::alltoall, kib) == "hierarchical");
    CHECK(taken(model, Collective::alltoall, 1024 * kib) == "pairwise");
    CHECK(taken(model, Collective::barrier, 0) == "hierarchical");
  }
  model.set_hosts(4, 4, false);
  CHECK(taken(model, Collective::alltoall, kib) == "pairwise");
  CHECK(taken(model, Collective::barrier, 0) == "dissemination");
  // Bytes take as long either way, however many meet at a port.
  const LinkCost only_bytes{0, 1e-9, 0, 0};
  for (const std::size_t bytes : {kib, 8 * kib}) {
    const Shape shape{
        .ranks = 16, .bytes = bytes, .tuning = {512 * kib, 4}, .hosts = 4, .ranks_a_host = 4};
    const auto seconds = [&](std::string_view name) {
      return cost_on(only_bytes, *find_algorithm(Collective::alltoall, name), shape);
    };
    CHECK(seconds("hierarchical") == Approx(seconds("pairwise")));
  }
}

TEST_CASE("a model takes the round trip for what a message costs, where that is far",
          "[cheapest]") {
  Model model(8);
  CHECK(taken(model, Collective::allreduce, kib) == "recursive_doubling");
  model.set_round_trip(0);
  model.set_round_trip(199e-6);
  CHECK(model.link().alpha == nominal::wire.alpha);
  model.set_round_trip(40e-3);
  CHECK(model.link().alpha == 0.015625);
  CHECK(model.link().beta == nominal::distant_beta);
  CHECK(model.link().message == nominal::wire.message);
  CHECK(model.tuning().start_bytes == Approx(0.015625 / nominal::distant_beta));
  CHECK(taken(model, Collective::allreduce, kib) == "direct");
  Model other(8);
  other.set_round_trip(44e-3);
  CHECK(other.link().alpha == model.link().alpha);

  CHECK(model.tuning().chunk_bytes == 512 * kib);
  model.set_round_trip(1.3e-3);  // far, but perhaps of one site
  CHECK(model.link().alpha == nominal::distant_alpha / 2);
  CHECK(model.link().beta == nominal::wire.beta);
  model.set_round_trip(1.5e-3);
  CHECK(model.link().alpha == nominal::distant_alpha);
  CHECK(model.link().beta == nominal::distant_beta);
  model.set_link(20e-3, nominal::wire.beta);
  CHECK(model.tuning().chunk_bytes == 2048 * kib);
  model.set_link(2e-3, nominal::wire.beta);  // a quarter of what the link holds is 625 KB
  CHECK(model.tuning().chunk_bytes == 1024 * kib);

  Model near(8);
  near.set_round_trip(50e-6);
  near.set_link(400e-6, 1e-9);  // of cores, then, which each message takes
  CHECK(near.link().message == Approx(200e-6));

  model.set_link(4e-6, 1e-9);
  CHECK(model.tuning().chunk_bytes == 512 * kib);
  CHECK(model.link().message == Approx(2e-6));
  CHECK(taken(model, Collective::allreduce, kib) == "recursive_doubling");
}

TEST_CASE("sockets of one host carry few chunks at once", "[cheapest]") {
  const auto tuning = [](const Settings& settings, bool views, int hosts) {
    Model model(settings, 4);
    model.set_views(views);
    model.set_hosts(hosts, 4 / hosts);
    return model.tuning();
  };
  Settings settings;
  const Tuning near = tuning(settings, false, 1);
  const Tuning apart = tuning(settings, false, 2);
  CHECK(near.lanes < apart.lanes);
  CHECK(near.chunk_bytes < apart.chunk_bytes);
  CHECK(tuning(settings, true, 1).lanes == apart.lanes);
  settings.deterministic = true;
  CHECK(tuning(settings, false, 1).lanes == tuning(settings, false, 2).lanes);
  settings.deterministic = false;
  settings.lanes = 3;
  settings.chunk = 1000;
  for (const bool views : {true, false}) {
    CHECK(tuning(settings, views, 1).lanes == 3);
    CHECK(tuning(settings, views, 1).chunk_bytes == 1000);
  }
}

TEST_CASE("a model that is pinned or has views asks no link", "[cheapest]") {
  Settings settings;
  settings.deterministic = true;
  Model pinned(settings, 8);
  pinned.set_views(false);
  pinned.set_hosts(2, 4);
  pinned.set_round_trip(40e-3);
  CHECK(pinned.link().alpha == nominal::wire.alpha);
  CHECK(pinned.shape(1).ranks_a_host == 1);
  Model sharing(8);
  sharing.set_views(true);
  sharing.set_round_trip(40e-3);
  CHECK(sharing.link().alpha == nominal::memory.alpha);
  for (std::size_t bytes = 1; bytes < 64 * kib; bytes = bytes * 3 / 2 + 1) {
    const Algorithm& rule = default_algorithm(sharing.shape(bytes), Collective::allreduce);
    REQUIRE(&sharing.algorithm(Collective::allreduce, bytes) == &rule);
  }
}

TEST_CASE("a forced algorithm is taken on any link", "[cheapest]") {
  Model model(8);
  model.set_round_trip(40e-3);
  REQUIRE(!model.force("allreduce:ring"));
  CHECK(model.is_forced(Collective::allreduce));
  CHECK_FALSE(model.is_forced(Collective::broadcast));
  CHECK(taken(model, Collective::allreduce, kib) == "ring");
}

}  // namespace pith::test
