// Start-up with transports of which one stands in for another: it is made where it is needed.
#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "catch.hpp"
#include "startup/connect.hpp"
#include "startup/rendezvous.hpp"

using namespace pith;

namespace {

constexpr int ranks = 3;

// What the ranks of a run made; null: nothing.
using Made = std::array<std::atomic<const Transport*>, ranks>;
Made made_fast;
Made made_slow;
// Ranks from this one on have none.
int fast_ranks = ranks;
int slow_ranks = ranks;

const TransportFactory& tcp() {
  for (const TransportFactory* one : transport_table()) {
    if (one->name == "tcp") return *one;
  }
  throw std::runtime_error("no tcp");
}

Expected<std::unique_ptr<PeerTransport>> make(const TransportSite& site, Made& made, int most) {
  if (site.rank >= most) return std::unique_ptr<PeerTransport>();
  auto transport = tcp().make(site);
  if (transport) made[static_cast<std::size_t>(site.rank)] = transport->get();
  return transport;
}

constexpr TransportFactory fast{
    .name = "fast", .medium = Medium::rdma, .make = [](const TransportSite& site) {
      return make(site, made_fast, fast_ranks);
    }};
constexpr TransportFactory slow{
    .name = "slow",
    .medium = Medium::rdma,
    .stands_in_for = "fast",
    .make = [](const TransportSite& site) { return make(site, made_slow, slow_ranks); }};

// Starts the ranks; by pair of ranks "fast", "slow", "other" or an error.
std::vector<std::string> links(const std::string& order) {
  for (Made* made : {&made_fast, &made_slow}) {
    for (auto& one : *made) one = nullptr;
  }
  const std::array<const TransportFactory*, 3> table = {&fast, &slow, &tcp()};
  Settings settings;
  settings.transport = order;
  settings.host = "127.0.0.1";
  const Expected<UniqueId> id = Rendezvous::open("127.0.0.1", 60);
  REQUIRE(id);
  std::vector<std::string> found(ranks * ranks);
  const auto live = [&](int rank) {
    const auto comm = make_communicator(settings, *id, rank, ranks, nullptr, table);
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer == rank) continue;
      std::string& link = found[std::size_t(rank) * ranks + std::size_t(peer)];
      if (!comm) {
        link = comm.error().message();
        continue;
      }
      const auto self = static_cast<std::size_t>(rank);
      const Transport* used = (*comm)->links().route_to(peer).transport;
      link = used == made_fast[self] ? "fast" : used == made_slow[self] ? "slow" : "other";
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(live, rank);
  for (std::thread& thread : threads) thread.join();
  return found;
}

std::vector<bool> which(const Made& made) {
  std::vector<bool> are;
  for (const auto& one : made) are.push_back(one != nullptr);
  return are;
}

using Pairs = std::vector<std::string>;

}  // namespace

TEST_CASE("a transport that stands in for another one is made where it is needed") {
  fast_ranks = slow_ranks = ranks;
  SECTION("all ranks reach each other by the better one") {
    CHECK(links("") == Pairs{"", "fast", "fast", "fast", "", "fast", "fast", "fast", ""});
    CHECK(which(made_slow) == std::vector<bool>(ranks, false));
  }
  SECTION("a rank lacks the better one") {
    fast_ranks = 2;
    CHECK(links("") == Pairs{"", "fast", "slow", "fast", "", "slow", "slow", "slow", ""});
    CHECK(which(made_slow) == std::vector<bool>(ranks, true));
  }
  SECTION("only one rank has the better one: two have met before the third comes") {
    fast_ranks = 1;
    CHECK(links("") == Pairs{"", "slow", "slow", "slow", "", "slow", "slow", "slow", ""});
    CHECK(which(made_slow) == std::vector<bool>(ranks, true));
  }
  SECTION("a rank lacks both") {
    fast_ranks = slow_ranks = 2;
    CHECK(links("") == Pairs{"", "fast", "other", "fast", "", "other", "other", "other", ""});
    CHECK(which(made_slow) == std::vector<bool>(ranks, false));
  }
  SECTION("it is asked for by name") {
    CHECK(links("fast,slow,tcp") ==
          Pairs{"", "fast", "fast", "fast", "", "fast", "fast", "fast", ""});
    CHECK(which(made_slow) == std::vector<bool>(ranks, true));
  }
  SECTION("the other one is not allowed") {
    CHECK(links("^fast") == Pairs{"", "slow", "slow", "slow", "", "slow", "slow", "slow", ""});
    CHECK(which(made_fast) == std::vector<bool>(ranks, false));
  }
}
