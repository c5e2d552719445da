// pithCommInitEnv between processes that look as if a launcher had started them.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "../api/ranks.hpp"
#include "catch.hpp"
#include "core/clock.hpp"
#include "sanitized.hpp"
#include "startup/bootstrap.hpp"
#include "startup/job_secret.hpp"
#include "startup/pmi_wire.hpp"
#include "tests/comm/meeting_places.hpp"
#include "transport/socket.hpp"

using namespace pith;
using pith::test::free_port;
using pith::test::sanitized;
using namespace ranks;

namespace {

void set(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }

// As torchrun on one host; the port of the root is PITH_PORT.
void as_torchrun(const Rank& self, int port) {
  set("RANK", std::to_string(self.rank));
  set("WORLD_SIZE", std::to_string(self.size));
  set("LOCAL_WORLD_SIZE", std::to_string(self.size));
  set("MASTER_ADDR", "localhost");
  set("MASTER_PORT", "29500");
  set("PITH_PORT", std::to_string(port));
}

void by_hand(const Rank& self, const std::string& root) {
  set("PITH_RANK", std::to_string(self.rank));
  set("PITH_SIZE", std::to_string(self.size));
  set("PITH_ROOT", root);
}

void as_srun(const Rank& self, int port) {
  set("SLURM_PROCID", std::to_string(self.rank));
  set("SLURM_NTASKS", std::to_string(self.size));
  set("SLURM_STEP_ID", "0");
  set("SLURM_JOB_ID", std::to_string(getppid()));
  set("SLURM_NNODES", "1");
  set("SLURM_NODELIST", "node[1-1]");
  set("PITH_PORT", std::to_string(port));
}

// As PITH_ROOT makes it.
UniqueId id_at(const std::string& root) {
  UniqueId id;
  id.address = root;
  id.secret = derive_secret("", "by hand");
  id.known_before = true;
  return id;
}

// Twice, so that the second meeting finds its port free again.
void start_twice_and_sum(Rank& self) {
  for (int round = 0; round < 2; ++round) {
    pithComm_t made = nullptr;
    ok(pithCommInitEnv(&made));
    const Comm comm(made);
    int rank = -1;
    int size = 0;
    ok(pithCommUserRank(comm, &rank));
    ok(pithCommCount(comm, &size));
    ensure(rank == self.rank && size == self.size, "another place");
    std::int32_t sum = 0;
    const std::int32_t mine = self.rank + 1;
    ok(pithAllReduce(&mine, &sum, 1, pithInt32, pithSum, comm, nullptr));
    ensure(sum == self.size * (self.size + 1) / 2, "a wrong sum");
  }
}

Setup few_seconds(const char* timeout = "20") {
  Setup setup;
  setup.environment = {{"PITH_INIT_TIMEOUT", timeout}};
  return setup;
}

}  // namespace

TEST_CASE("ranks start by torchrun's variables, srun's and by hand", "[environment]") {
  const int port = free_port();
  const Setup setup = few_seconds();
  CHECK(run(3, setup, [&](Rank& self) {
          as_torchrun(self, port);
          sleep_s(0.05 * (self.size - self.rank));  // rank 0 comes last
          start_twice_and_sum(self);
        }) == "");
  CHECK(run(3, setup, [&](Rank& self) {
          as_srun(self, port);
          start_twice_and_sum(self);
        }) == "");
  CHECK(run(3, setup, [&](Rank& self) {
          by_hand(self, "localhost:" + std::to_string(port));
          set("PITH_SECRET", "open sesame");
          start_twice_and_sum(self);
        }) == "");
  CHECK(run(1, setup, [&](Rank& self) {
          as_torchrun(self, port);
          start_twice_and_sum(self);
        }) == "");
}

TEST_CASE("another secret is refused", "[environment]") {
  const int port = free_port();
  CHECK(run(2, few_seconds("2"), [&](Rank& self) {
          as_torchrun(self, port);
          set("PITH_SECRET", self.rank == 0 ? "open sesame" : "open barley");
          pithComm_t comm = nullptr;
          if (self.rank == 0) {
            fails(pithCommInitEnv(&comm), pithRemoteError,
                  {"rank 1 did not join", "1 call with another secret was refused"});
          } else {
            fails(pithCommInitEnv(&comm), pithRemoteError,
                  {"PITH_SECRET", "differs between rank 1 and rank 0"});
          }
        }) == "");
}

TEST_CASE("two processes take themselves for rank 0: both hear of it", "[environment]") {
  const int port = free_port();
  CHECK(run(2, few_seconds("20"), [&](Rank& self) {
          if (self.rank == 1) sleep_s(0.3);
          const double start = now_s();
          by_hand(self, "127.0.0.1:" + std::to_string(port));
          set("PITH_RANK", "0");
          pithComm_t comm = nullptr;
          fails(pithCommInitEnv(&comm), pithRemoteError,
                {"rank 0 joined twice", "process ", "expected each rank from 0 to 1 once"});
          ensure(now_s() - start < 10, "waited for the timeout");
        }) == "");
}

TEST_CASE("without a secret only loopback will do", "[environment]") {
  CHECK(run(2, few_seconds("1"), [](Rank& self) {
          by_hand(self, "192.0.2.1:5000");
          pithComm_t comm = nullptr;
          fails(pithCommInitEnv(&comm), pithInvalidUsage,
                {"PITH_SECRET", "PITH_SECRET_FILE", "PITH_INSECURE=1"});
        }) == "");
  CHECK(run(2, few_seconds("1"), [](Rank& self) {
          by_hand(self, "192.0.2.1:5000");
          set("PITH_INSECURE", "1");
          set("PITH_ENCRYPT", "1");
          pithComm_t comm = nullptr;
          fails(pithCommInitEnv(&comm), pithInvalidUsage,
                {"PITH_ENCRYPT is 1", "no secret", "PITH_SECRET_FILE"});
        }) == "");
  // Rank 0 listens everywhere then, and is reached by loopback too.
  const int port = free_port();
  CHECK(run(2, few_seconds(), [&](Rank& self) {
          const std::string host = self.rank == 0 ? "192.0.2.1" : "127.0.0.1";
          by_hand(self, host + ":" + std::to_string(port));
          set("PITH_INSECURE", "1");
          start_twice_and_sum(self);
        }) == "");
}

TEST_CASE("a missing rank 0, or another one, ends the start", "[environment]") {
  const int port = free_port();
  const std::string at = "127.0.0.1:" + std::to_string(port);
  CHECK(run(2, few_seconds("0.5"), [&](Rank& self) {
          by_hand(self, at);
          pithComm_t comm = nullptr;
          if (self.rank == 1) fails(pithCommInitEnv(&comm), pithRemoteError, {at});
        }) == "");
  CHECK(run(3, few_seconds("0.5"), [&](Rank& self) {
          by_hand(self, at);
          pithComm_t comm = nullptr;
          if (self.rank == 1) return;
          fails(pithCommInitEnv(&comm), pithRemoteError, {"rank 1 did not join"});
        }) == "");
}

TEST_CASE("where one has left, who has not come yet is named as well", "[environment]") {
  const int port = free_port();
  const std::string at = "127.0.0.1:" + std::to_string(port);
  CHECK(run(3, few_seconds("20"), [&](Rank& self) {
          if (self.rank == 1) ensure(static_cast<bool>(Bootstrap::join(id_at(at), 1, 3, 20)), at);
          if (self.rank != 0) return;
          by_hand(self, at);
          pithComm_t comm = nullptr;
          fails(pithCommInitEnv(&comm), pithRemoteError,
                {"rank 1 went away during start-up", "rank 2 had not come"});
        }) == "");
}

// The port of a start that has failed serves the next one of the same process.
TEST_CASE("ranks start again where they have failed to", "[environment]") {
  const int port = free_port();
  CHECK(run(3, few_seconds("1"), [&](Rank& self) {
          by_hand(self, "127.0.0.1:" + std::to_string(port));
          pithComm_t comm = nullptr;
          self.meet();
          if (self.rank != 2)
            fails(pithCommInitEnv(&comm), pithRemoteError, {"rank 2 did not join"});
          if (self.rank == 0) sleep_s(0.5);  // the others call again before it opens
          self.meet();
          set("PITH_INIT_TIMEOUT", "20");
          if (self.rank == 0) sleep_s(0.3);
          if (self.rank == 2) sleep_s(0.6);
          start_twice_and_sum(self);
        }) == "");
}

TEST_CASE("a launcher that takes nothing, and has nothing", "[environment]") {
  const std::string answers =
      "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\ncmd=my_kvsname kvsname=space\n"
      "cmd=put_result rc=1\ncmd=get_result rc=1\ncmd=finalize_ack\n";
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  const Descriptor ours(ends[0]);
  const Descriptor theirs(ends[1]);
  REQUIRE(send(theirs.get(), answers.data(), answers.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(answers.size()));
  const std::uint64_t deadline_ns = monotonic_ns() + 1'000'000'000;
  Expected<PmiWire> wire = PmiWire::open(ours.get(), deadline_ns);
  REQUIRE(wire);
  CHECK(wire->put("key", "value", deadline_ns).code() == Code::system);
  CHECK(wire->get("key", deadline_ns).error().code() == Code::remote);
}

namespace {

void start_and_sum(Rank& self, pithComm_t made) {
  const Comm comm(made);
  std::int32_t sum = 0;
  const std::int32_t one = 1;
  ok(pithAllReduce(&one, &sum, 1, pithInt32, pithSum, comm, nullptr));
  ensure(sum == self.size, "a wrong sum");
}

// Seconds in which so many processes start, sum and end: of three tries the best one, where the
// first took too long on a busy machine.
double seconds_to_start(int ranks, double limit_s, const Setup& setup, const Body& body) {
  double best_s = 1e9;
  for (int turn = 0; turn < 3 && best_s >= limit_s; ++turn) {
    const double start = now_s();
    CHECK(run(ranks, setup, body) == "");
    best_s = std::min(best_s, now_s() - start);
  }
  return best_s;
}

}  // namespace

// 256 processes of a sanitizer keep two cores busy for minutes, and show what 64 of them show.
TEST_CASE("64 ranks start in time, and 256 where there is time", "[environment][timed]") {
  const int port = free_port();
  const bool full = !sanitized && std::getenv("PITH_TEST_FULL") != nullptr;
  const int most = full ? 256 : 64;
  const double limit_s = sanitized ? 100 : full ? 15 : 4;
  Setup setup = few_seconds("100");
  setup.limit_s = 100;
  const double by_launcher_s = seconds_to_start(most, limit_s, setup, [&](Rank& self) {
    as_torchrun(self, port);
    pithComm_t made = nullptr;
    ok(pithCommInitEnv(&made));
    start_and_sum(self, made);
  });
  const double by_id_s =
      seconds_to_start(most, limit_s, setup, [](Rank& self) { start_and_sum(self, self.join()); });
  std::printf(
      "%d processes started, summed and ended in %.1f s by a launcher's variables, in "
      "%.1f s by an id\n",
      most, by_launcher_s, by_id_s);
  CHECK(by_launcher_s < limit_s);
  CHECK(by_id_s < limit_s);
}
