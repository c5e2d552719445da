// pithSetInterrupt: a thread that waits can end its wait, in every kind of call.
#include <thread>
#include <utility>

#include "catch.hpp"
#include "ranks.hpp"

using namespace ranks;

namespace {

constexpr double soon_s = 2;

// Ends the wait when it is asked for the third time.
struct Patience {
  Patience() { ok(pithSetInterrupt(&ask, this)); }
  ~Patience() { pithSetInterrupt(nullptr, nullptr); }
  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;
  static int ask(void* self) { return ++static_cast<Patience*>(self)->asked == 3; }
  int asked = 0;
};

void is_interrupted(Rank& self, const std::function<pithResult_t()>& call,
                    std::initializer_list<std::string_view> words = {"interrupted"}) {
  const Patience patience;
  const double start = now_s();
  fails(call(), pithRemoteError, words);
  self.in_time(now_s() - start, soon_s, "the end of the wait");
  ensure(patience.asked == 3, "asked " + std::to_string(patience.asked) + " times");
}

bool is_revoked(pithComm_t comm) {
  pithResult_t state = pithSuccess;
  ok(pithCommGetAsyncError(comm, &state));
  return state != pithSuccess;
}

pithResult_t end_in_background(pithComm_t comm) {
  ok(pithGroupStart());
  ok(pithBarrier(comm, nullptr));
  pithRequest_t request = nullptr;
  ok(pithGroupEndAsync(&request));
  return pithWait(request);
}

// The calls in which rank 0 waits for the others, which do not come.
using Call = std::function<pithResult_t(pithComm_t)>;
const std::vector<std::pair<const char*, Call>> calls{
    {"barrier", [](pithComm_t comm) { return pithBarrier(comm, nullptr); }},
    {"recv",
     [](pithComm_t comm) {
       char byte = 0;
       return pithRecv(&byte, 1, pithUint8, 1, comm, nullptr);
     }},
    {"request", end_in_background},
    {"split",
     [](pithComm_t comm) {
       pithComm_t half = nullptr;
       return pithCommSplit(comm, 0, 0, &half, nullptr);
     }},
};

TEST_CASE("a thread that waits can end its wait, and the others hear of it", "[interrupts]") {
  for (const Setup& setup : every_link()) {
    for (const auto& [name, call] : calls) {
      INFO(name_of(setup) << " " << name);
      const bool splits = name == std::string_view("split");
      CHECK(run_in_time(2, setup, [&call, splits](Rank& self) {
              const Comm comm(self.join());
              ok(pithBarrier(comm, nullptr));
              if (self.rank == 0) {
                is_interrupted(self, [&] { return call(comm); }, {"rank 0"});
              }
              self.meet();
              if (self.rank == 1 && !splits) {
                wait_until([&] { return is_revoked(comm); });
                fails(pithBarrier(comm, nullptr), pithRemoteError, {"rank 0", "interrupted"});
              }
              self.meet();
            }) == "");
    }
  }
}

TEST_CASE("a wait for a rank that never joins can be ended", "[interrupts]") {
  CHECK(run_in_time(1, alone(), [](Rank& self) {
          pithUniqueId id;
          ok(pithGetUniqueId(&id));
          is_interrupted(self,
                         [&] {
                           pithComm_t comm = nullptr;
                           return pithCommInitRank(&comm, 2, id, 0);
                         },
                         {"rank 0"});
        }) == "");
}

TEST_CASE("a check may make groups while its thread waits for one", "[interrupts]") {
  Setup threads;
  threads.way = Way::threads;
  CHECK(run_in_time(2, threads, [](Rank& self) {
          const Comm one(self.join());
          pithComm_t other = nullptr;
          ok(pithCommSplit(one, 0, 0, &other, nullptr));
          struct Other {
            Comm comm;
            bool is_called = false;
          } two{Comm(other)};
          const auto call_other = [](void* context) {
            Other& its = *static_cast<Other*>(context);
            if (std::exchange(its.is_called, true)) return 0;
            ok(pithGroupStart());
            ok(pithBarrier(its.comm, nullptr));
            pithRequest_t request = nullptr;
            ok(pithGroupEndAsync(&request));
            ok(pithWait(request));
            return 0;
          };
          if (self.rank == 0) ok(pithSetInterrupt(call_other, &two));
          if (self.rank == 1) call_other(&two);
          ok(pithGroupStart());
          ok(pithBarrier(one, nullptr));
          ok(pithGroupEnd());
          ok(pithSetInterrupt(nullptr, nullptr));
          std::int32_t sum = 1;
          ok(pithAllReduce(&sum, &sum, 1, pithInt32, pithSum, one, nullptr));
          ensure(sum == 2 && two.is_called, "the group was called twice, or the check never");
        }) == "");
}

TEST_CASE("a wait for two communicators can be ended, and a check that goes on changes nothing",
          "[interrupts]") {
  Setup threads;
  threads.way = Way::threads;
  CHECK(run_in_time(2, threads, [](Rank& self) {
          const Comm one(self.join());
          pithComm_t half = nullptr;
          ok(pithCommSplit(one, 0, 0, &half, nullptr));
          const Comm two(half);
          int asked = 0;
          ok(pithSetInterrupt([](void* count) { return 0 * ++*static_cast<int*>(count); }, &asked));
          if (self.rank == 1) sleep_s(0.3);
          ok(pithBarrier(one, nullptr));
          ensure(self.rank == 1 || asked > 1, "never asked");
          ok(pithSetInterrupt(nullptr, nullptr));
          self.meet();
          if (self.rank == 0) {
            is_interrupted(self, [&] {
              ok(pithGroupStart());
              ok(pithBarrier(one, nullptr));
              ok(pithBarrier(two, nullptr));
              return pithGroupEnd();
            });
          }
          self.meet();
          wait_until([&] { return is_revoked(one) && is_revoked(two); });
          fails(pithBarrier(one, nullptr), pithRemoteError, {"rank 0"});
          fails(pithBarrier(two, nullptr), pithRemoteError, {"rank 0"});
          self.meet();
        }) == "");
}

}  // namespace
