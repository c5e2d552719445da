// Jobs with PITH_ENCRYPT: all ranks agree, only TCP leaves a host, and calls give what they give.
#include <cstdlib>
#include <string>
#include <vector>

#include "../api/ranks.hpp"
#include "catch.hpp"

using namespace ranks;

namespace {

Setup encrypted(const std::string& transport) {
  Setup setup;
  setup.transport = transport;
  setup.environment = {{"PITH_ENCRYPT", "1"}};
  setup.limit_s = 60;
  return setup;
}

void sum(pithComm_t comm, int size, std::size_t count) {
  const std::vector<std::int32_t> ones(count, 1);
  std::vector<std::int32_t> sums(count);
  ok(pithAllReduce(ones.data(), sums.data(), count, pithInt32, pithSum, comm, nullptr));
  ensure(sums == std::vector<std::int32_t>(count, size), "a wrong sum");
}

// The start fails on every rank, with all these words.
void cannot_start(Rank& self, std::initializer_list<const char*> words) {
  const pithUniqueId id = self.id();
  pithComm_t comm = nullptr;
  ensure(pithCommInitRank(&comm, self.size, id, self.rank) != pithSuccess, "started");
  const std::string text = pithGetLastError(nullptr);
  for (const char* word : words) ensure(text.find(word) != std::string::npos, text);
}

}  // namespace

TEST_CASE("ranks sum over encrypted connections", "[encrypted]") {
  for (const Way way : {Way::processes, Way::threads}) {
    Setup setup = encrypted("tcp");
    setup.way = way;
    CHECK(run(4, setup, [](Rank& self) {
            const Comm comm(self.join());
            for (const std::size_t count : {1u, 1000u, 20'000u, 2'000'000u}) {
              sum(comm, self.size, count);
            }
            pithComm_t child = nullptr;
            ok(pithCommSplit(comm, self.rank % 2, self.rank, &child, nullptr));
            const Comm half(child);
            sum(half, 2, 300'000);
          }) == "");
  }
}

TEST_CASE("a rank that is killed is named over encrypted connections, too", "[encrypted]") {
  Setup setup = encrypted("tcp");
  setup.may_be_killed = true;
  CHECK(run_in_time(3, setup, [](Rank& self) {
          const Comm comm(self.join());
          sum(comm, self.size, 1000);
          self.meet();
          if (self.rank == 1) self.die();
          std::vector<float> data(3'000'000, 1);
          fails(pithAllReduce(data.data(), data.data(), data.size(), pithFloat32, pithSum, comm,
                              nullptr),
                pithRemoteError, {"rank 1"});
          self.in_time(self.since_death_of(1), 1, "to hear of the death");
        }) == "");
}

TEST_CASE("ranks of one host share memory, and what leaves it goes by tcp", "[encrypted]") {
  CHECK(run(3, encrypted(""), [](Rank& self) {
          setenv("PITH_HOST_ID", self.rank == 2 ? "another" : "one", 1);
          const Comm comm(self.join());
          sum(comm, self.size, 100'000);
        }) == "");
}

TEST_CASE("ranks must agree whether they encrypt", "[encrypted]") {
  Setup setup;
  setup.transport = "tcp";
  const double begin = now_s();
  CHECK(run(3, setup, [](Rank& self) {
          setenv("PITH_ENCRYPT", self.rank == 1 ? "1" : "0", 1);
          cannot_start(self, {"disagree on a setting", "PITH_ENCRYPT=1", "PITH_ENCRYPT=0"});
        }) == "");
  CHECK(now_s() - begin < 30);
}

TEST_CASE("transports that cannot encrypt are refused by name", "[encrypted]") {
  for (const char* transport : {"ucx", "verbs", "shm,ucx,tcp"}) {
    INFO(transport);
    const std::string named = std::string("PITH_TRANSPORT is \"") + transport + '"';
    CHECK(run(2, encrypted(transport), [&](Rank& self) {
            cannot_start(self, {named.c_str(), "PITH_ENCRYPT is 1", "cannot encrypt"});
          }) == "");
  }
}
