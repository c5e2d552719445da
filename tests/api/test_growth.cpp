// Ranks that join a running communicator, also in place of dead ones.
#include "growth.hpp"

#include "catch.hpp"

using namespace ranks;

TEST_CASE("ranks join a communicator, whose ranks keep their numbers", "[growth]") {
  for (const Setup& setup : with_threads(processes())) {
    for (const auto& [members, size] : {std::pair(1, 2), {2, 3}, {3, 5}}) {
      INFO(name_of(setup) << ", " << members << " grow to " << size);
      CHECK(run(size, setup, [members](Rank& self) {
              const Comm comm(members_of(self, members));
              const pithUniqueId id = shared_id(self, comm, members - 1);
              pithComm_t made = nullptr;
              ok(grow(self, comm, self.size, id, &made, members - 1));
              const Comm grown(made);
              works(grown, self.rank, self.size);
              if (comm) works(comm, self.rank, members);
              works(grown, self.rank, self.size);
            }) == "");
    }
  }
}

TEST_CASE("a grown communicator outlives the one that grew, is split, shrunk and grows again",
          "[growth]") {
  for (const Setup& setup : with_threads(processes())) {
    INFO(name_of(setup));
    CHECK(run(4, setup, [](Rank& self) {
            pithComm_t comm = members_of(self, 2);
            if (self.rank < 3) {
              const pithUniqueId id = shared_id(self, comm);
              pithComm_t grown = nullptr;
              ok(grow(self, comm, 3, id, &grown));
              ok(pithCommDestroy(comm));
              comm = grown;
              works(comm, self.rank, 3);
              pithComm_t part = nullptr;
              ok(pithCommSplit(comm, self.rank % 2, 0, &part, nullptr));
              ok(pithCommDestroy(part));
            }
            const pithUniqueId id = shared_id(self, comm, 2, 1);
            pithComm_t grown = nullptr;
            ok(grow(self, comm, 4, id, &grown, 2));
            ok(pithCommDestroy(comm));
            works(grown, self.rank, 4);
            int last = 3;
            pithComm_t fewer = nullptr;
            if (self.rank != last) {
              ok(pithCommShrink(grown, &last, 1, &fewer, nullptr, PITH_SHRINK_DEFAULT));
              works(fewer, self.rank, 3);
            }
            self.meet();
            ok(pithCommDestroy(fewer));
            ok(pithCommDestroy(grown));
          }) == "");
  }
}

TEST_CASE("a new process takes the place of one that died", "[growth]") {
  for (const Setup& setup : processes()) {
    for (const int victim : {0, 1, 2}) {
      INFO(name_of(setup) << ", victim " << victim);
      // Rank 3 of the run is the replacement.
      CHECK(run(4, setup, [victim](Rank& self) {
              const Comm comm(members_of(self, 3));
              pithComm_t made = nullptr;
              if (self.rank == 3) {
                const pithUniqueId id = told_id(self);
                ok(pithCommGrow(nullptr, 3, &id, 2, &made, nullptr));
                const Comm whole(made);
                return works(whole, 2, 3);
              }
              works(comm, self.rank, 3);
              self.slot(self.rank) = 1;  // the others may still be in that call
              for (const int r : {0, 1, 2}) wait_until([&] { return self.slot(r) == 1; });
              if (self.rank == victim) self.die();
              pithResult_t result = pithSuccess;
              std::int64_t sum = 0;
              while (result == pithSuccess) {
                result = pithAllReduce(&sum, &sum, 1, pithInt64, pithSum, comm, nullptr);
              }
              ensure(result == pithRemoteError, pithGetLastError(nullptr));
              pithUniqueId id;
              fails(pithCommGetUniqueId(comm, &id), pithRemoteError, {"rank"});
              fails(pithCommGrow(comm, 4, nullptr, -1, &made, nullptr), pithRemoteError, {"rank"});
              ok(pithCommShrink(comm, nullptr, 0, &made, nullptr, PITH_SHRINK_DEFAULT));
              const Comm fewer(made);
              const int rank = self.rank - (self.rank > victim ? 1 : 0);
              if (rank == 0) ok(pithCommGetUniqueId(fewer, &id));
              if (rank == 0) tell_id(self, id);
              ok(pithCommGrow(fewer, 3, rank == 0 ? &id : nullptr, -1, &made, nullptr));
              const Comm whole(made);
              works(whole, rank, 3);
            }) == "");
    }
  }
}

TEST_CASE("many ranks join at once", "[growth]") {
  for (Setup setup : with_threads(processes())) {
    INFO(name_of(setup));
    setup.limit_s = 90;  // on a busy machine they take long to start
    setup.environment = {{"PITH_INIT_TIMEOUT", "60"}};
    CHECK(run(16, setup, [](Rank& self) {
            const Comm comm(members_of(self, 2));
            const pithUniqueId id = shared_id(self, comm, 1);
            pithComm_t made = nullptr;
            ok(grow(self, comm, self.size, id, &made, 1));
            const Comm grown(made);
            works(grown, self.rank, self.size);
          }) == "");
  }
}

TEST_CASE("one thread grows a communicator by its own ranks in a group", "[growth]") {
  CHECK(run(1, alone(), [](Rank&) {
          std::array<pithComm_t, 2> comms{};
          std::array<pithComm_t, 4> grown{};
          ok(pithCommInitAll(comms.data(), 2, nullptr));
          pithUniqueId id;
          ok(pithCommGetUniqueId(comms[0], &id));
          ok(pithGroupStart());
          for (std::size_t r = 0; r < 4; ++r) {
            ok(pithCommGrow(r < 2 ? comms[r] : nullptr, 4, r == 1 ? nullptr : &id,
                            r < 2 ? -1 : static_cast<int>(r), &grown[r], nullptr));
          }
          ok(pithGroupEnd());
          for (std::size_t r = 0; r < 4; ++r) has_rank(grown[r], static_cast<int>(r), 4);
          for (const pithComm_t comm : comms) ok(pithCommDestroy(comm));
          for (const pithComm_t comm : grown) ok(pithCommAbort(comm));
        }) == "");
}

TEST_CASE("ranks that do not block grow and join", "[growth]") {
  for (const Setup& setup : processes()) {
    INFO(name_of(setup));
    CHECK(run(3, setup, [](Rank& self) {
            const Comm comm(members_of(self, 2));
            const pithUniqueId id = shared_id(self, comm);
            pithConfig_t config = PITH_CONFIG_INITIALIZER;
            config.blocking = 0;
            pithComm_t made = nullptr;
            pithResult_t result = pithCommGrow(comm, 3, &id, comm ? -1 : 2, &made, &config);
            // Members wait, for comm blocks; the new communicator does not.
            ensure(result == (comm ? pithSuccess : pithInProgress), pithGetLastError(nullptr));
            wait_until([&] {
              ok(pithCommGetAsyncError(made, &result));
              return result != pithInProgress;
            });
            ok(result);
            std::int64_t sum = 1;
            result = pithAllReduce(&sum, &sum, 1, pithInt64, pithSum, made, nullptr);
            ensure(result == pithInProgress, "it blocks");
            wait_until([&] {
              ok(pithCommGetAsyncError(made, &result));
              return result != pithInProgress;
            });
            ensure(result == pithSuccess && sum == 3, "a wrong sum");
            ok(pithCommDestroy(made));
          }) == "");
  }
}

TEST_CASE("refused arguments of a growth change nothing", "[growth]") {
  CHECK(run(2, processes().front(), [](Rank& self) {
          const Comm comm(members_of(self, 1));
          const pithUniqueId of_init = self.id(1);
          const pithUniqueId id = shared_id(self, comm);
          const pithUniqueId nothing{};
          pithComm_t made = nullptr;
          const auto bad = pithInvalidArgument;
          const auto join = [&](int nranks, const pithUniqueId* by, int rank) {
            return pithCommGrow(nullptr, nranks, by, rank, &made, nullptr);
          };
          fails(join(2, nullptr, 1), bad, {"pithCommGrow", "id is NULL"});
          fails(join(2, &nothing, 1), bad, {"id is not one from pithCommGetUniqueId"});
          fails(join(2, &of_init, 1), bad, {"id is not one from pithCommGetUniqueId"});
          fails(join(1, &id, 1), bad, {"nranks is 1", "more than the 1 that there are"});
          fails(join(1 << 30, &id, 1), bad, {"nranks is 1073741824", "at most 1048576"});
          for (const int rank : {-1, 0, 3}) {
            fails(join(3, &id, rank), bad, {"rank is " + std::to_string(rank), "1 to 2"});
          }
          fails(pithCommGrow(nullptr, 2, &id, 1, nullptr, nullptr), bad, {"newcomm is NULL"});
          pithConfig_t config = PITH_CONFIG_INITIALIZER;
          config.blocking = 7;
          fails(pithCommGrow(nullptr, 2, &id, 1, &made, &config), bad, {"blocking is 7"});
          fails(pithCommInitRank(&made, 2, id, 1), bad, {"pithCommGetUniqueId", "pithCommGrow"});
          pithUniqueId other;
          fails(pithCommGetUniqueId(nullptr, &other), bad, {"pithCommGetUniqueId", "comm is NULL"});
          if (comm) {
            fails(pithCommGetUniqueId(comm, nullptr), bad, {"id is NULL"});
            fails(pithCommGrow(comm, 1, &id, -1, &made, nullptr), bad, {"nranks is 1"});
            fails(pithCommGrow(comm, -4, &id, -1, &made, nullptr), bad, {"nranks is -4"});
            fails(pithCommGrow(comm, 2, &id, 0, &made, nullptr), bad, {"rank is 0", "-1"});
            fails(pithCommGrow(comm, 2, &of_init, -1, &made, nullptr), bad, {"id is not one"});
            fails(pithCommGrow(comm, 2, &id, -1, nullptr, nullptr), bad, {"newcomm is NULL"});
            fails(pithCommGrow(comm, 2, &id, -1, &made, &config), bad, {"blocking is 7"});
          }
          ok(grow(self, comm, 2, id, &made));
          const Comm grown(made);
          if (comm) {
            fails(pithCommGrow(grown, 3, &id, -1, &made, nullptr), bad,
                  {"id is for a communicator of 1 ranks", "comm's 2"});
          }
          works(grown, self.rank, 2);
        }) == "");
}

TEST_CASE("members keep the time limit of the communicator that grows", "[growth]") {
  CHECK(run(3, processes().front(), [](Rank& self) {
          const pithUniqueId of_members = self.id();
          pithComm_t comm = nullptr;
          pithConfig_t config = PITH_CONFIG_INITIALIZER;
          config.timeout = 1;
          if (self.rank < 2) {
            ok(pithCommInitRankConfig(&comm, 2, of_members, self.rank, &config));
          }
          const pithUniqueId id = shared_id(self, comm);
          pithComm_t made = nullptr;
          ok(grow(self, comm, 3, id, &made));
          std::int64_t sum = 1;
          if (self.rank != 1) {
            fails(pithAllReduce(&sum, &sum, 1, pithInt64, pithSum, made, nullptr), pithRemoteError,
                  {"rank 1"});
          }
          self.meet();
          ok(pithCommDestroy(made));
          ok(pithCommDestroy(comm));
        }) == "");
}

TEST_CASE("a growth is counted as a call, also one that came to nothing", "[growth]") {
  CHECK(run(3, processes().front(), [](Rank& self) {
          const Comm comm(members_of(self, 2));
          const pithUniqueId id = shared_id(self, comm);
          pithComm_t made = nullptr;
          if (comm) {
            works(comm, self.rank, 2);
            fails(pithCommGrow(comm, 3, nullptr, -1, &made, nullptr), pithInvalidUsage, {"an id"});
          }
          ok(grow(self, comm, 3, id, &made));
          ok(pithCommDestroy(made));
          if (!comm) return;
          ok(pithCommShrink(comm, nullptr, 0, &made, nullptr, PITH_SHRINK_DEFAULT));
          std::uint64_t completed = 0;
          ok(pithCommGetLastCompleted(made, &completed));
          ensure(completed == 3, "completed: " + std::to_string(completed));
          ok(pithCommDestroy(made));
        }) == "");
}
