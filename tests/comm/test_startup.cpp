// Start-up: ranks meet at the bootstrap root, whatever strangers do at its port.
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "../api/ranks.hpp"
#include "catch.hpp"
#include "core/clock.hpp"
#include "sanitized.hpp"
#include "startup/bootstrap.hpp"
#include "startup/rendezvous.hpp"
#include "tests/comm/meeting_places.hpp"
#include "transport/descriptor_table.hpp"

using namespace pith;
using pith::test::free_port;
using pith::test::open_root;
using pith::test::sanitized;
using namespace ranks;

namespace {

// What each of several threads gets; texts of errors.
std::vector<std::string> in_threads(int count, const std::function<std::string(int)>& body) {
  std::vector<std::string> results(static_cast<std::size_t>(count));
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, i] { results[static_cast<std::size_t>(i)] = body(i); });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

void sum_once(Rank& self, pithComm_t comm) {
  std::vector<std::int32_t> ones(10'000, 1);
  std::vector<std::int32_t> sums(ones.size());
  ok(pithAllReduce(ones.data(), sums.data(), ones.size(), pithInt32, pithSum, comm, nullptr));
  ensure(sums == std::vector<std::int32_t>(ones.size(), self.size), "a wrong sum");
}

void start_and_sum(Rank& self) {
  const Comm comm(self.join());
  sum_once(self, comm);
}

}  // namespace

TEST_CASE("ranks start by processes and threads", "[startup]") {
  std::vector<std::string> transports = {"shm", "tcp", "shm,tcp", "tcp,shm", "^shm", ""};
#if defined(PITH_UCX)
  transports.insert(transports.end(), {"ucx", "ucx,tcp", "shm,ucx", "^ucx"});
#endif
  for (const std::string& transport : transports) {
    Setup setup;
    setup.transport = transport;
    setup.limit_s = 60;
    INFO("PITH_TRANSPORT=" << transport);
    CHECK(run(4, setup, start_and_sum) == "");
    setup.way = Way::threads;
    CHECK(run(4, setup, start_and_sum) == "");
    setup.way = Way::all;
    CHECK(run(4, setup, start_and_sum) == "");
  }
}

TEST_CASE("ranks start over IPv6", "[startup]") {
  if (!listen_on("::1")) {
    WARN("no IPv6 here: not tested");
    return;
  }
  Setup setup;
  setup.transport = "tcp";
  for (const auto& environment :
       {std::pair("PITH_SOCKET_FAMILY", "AF_INET6"), std::pair("PITH_HOST", "::1")}) {
    setup.environment = {environment};
    CHECK(run(3, setup, [](Rank& self) {
            const pithUniqueId id = self.id();
            ensure(UniqueId::load(id.internal)->address.starts_with("[::1]:"), "no IPv6 root");
            start_and_sum(self);
          }) == "");
  }
}

TEST_CASE("ports are taken from the range alone", "[startup]") {
  const int first = free_port();
  const auto ports = [&](int count) {
    return std::pair<std::string, std::string>(
        "PITH_PORT_RANGE", std::to_string(first) + "-" + std::to_string(first + count - 1));
  };
  Setup setup;
  setup.transport = "tcp";
  setup.environment = {ports(20)};
  CHECK(run(3, setup, [&](Rank& self) {
          const pithUniqueId id = self.id();
          const std::string root = UniqueId::load(id.internal)->address;
          const int port = std::stoi(root.substr(root.find(':') + 1));
          ensure(port >= first && port < first + 20, root);
          start_and_sum(self);
        }) == "");
  setup.way = Way::alone;
  setup.environment = {ports(1)};
  CHECK(run(1, setup, [&](Rank&) {
          pithUniqueId id{};
          ok(pithGetUniqueId(&id));
          fails(pithGetUniqueId(&id), pithSystemError,
                {"127.0.0.1, port " + std::to_string(first) + " (PITH_PORT_RANGE)"});
        }) == "");
}

TEST_CASE("a transport that is asked for and not there", "[startup]") {
  Setup setup;
  setup.transport = "shm,ucx";
  setup.environment = {{"UCX_TLS", "no_such_way"}};
  CHECK(run(2, setup, [](Rank& self) {
          const pithUniqueId id = self.id();
          pithComm_t comm = nullptr;
          const pithResult_t result = pithCommInitRank(&comm, 2, id, self.rank);
          const std::string text = pithGetLastError(nullptr);
          ensure(result != pithSuccess, "started without ucx");
          // The rank that comes second may hear of the first one's end only.
          if (result == pithRemoteError) return;
          for (const char* word : {"PITH_TRANSPORT is \"shm,ucx\"", "ucx is not available to rank",
                                   "known are local, shm, verbs, ucx, tcp"}) {
            ensure(text.find(word) != std::string::npos, text);
          }
        }) == "");
}

namespace {

// Of this process, by a line of /proc/self/status.
double mebibytes(const char* line) {
  std::ifstream status("/proc/self/status");
  for (std::string text; std::getline(status, text);) {
    if (text.starts_with(line)) return std::stod(text.substr(std::strlen(line))) / 1024;
  }
  return -1;
}

// What a start-up tells and hears: who a rank is, then to whom it has attached.
std::string start_as(const UniqueId& id, int rank, int ranks) {
  Expected<Bootstrap> joined = Bootstrap::join(id, rank, ranks, 60);
  if (!joined) return joined.error().message();
  const auto n = static_cast<std::size_t>(ranks);
  for (const std::size_t length : {std::size_t{200}, n}) {
    std::string mine(length, static_cast<char>('a' + rank % 26));
    mine.replace(0, 4, std::to_string(1000 + rank));
    const auto blobs = joined->gather(mine);
    if (!blobs) return blobs.error().message();
    if (blobs->size() != n) return "a wrong number of blobs";
    for (int r = 0; r < ranks; ++r) {
      const std::string& blob = (*blobs)[static_cast<std::size_t>(r)];
      if (blob.size() != length || blob.substr(0, 4) != std::to_string(1000 + r) ||
          blob.back() != 'a' + r % 26) {
        return "a wrong blob of rank " + std::to_string(r);
      }
    }
  }
  return {};
}

void limit_descriptors(int most) {
  const auto all = static_cast<rlim_t>(most);
  const rlimit both = {all, all};
  ensure(setrlimit(RLIMIT_NOFILE, &both) == 0, "no limit");
}

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

bool may_leave_table() {
  bool may = false;
  std::thread([&may] { may = leave_descriptor_table({}); }).join();
  return may;
}

}  // namespace

// The root's connections are in a table of their own, if that may be.
//
// All ranks but the root are threads of a few processes: what they hear takes memory, too, and is
// not to be counted as the root's.
TEST_CASE("a thousand ranks meet at one root", "[startup]") {
  const int ranks = sanitized ? 100 : 1000;
  constexpr int processes = 10;
  Setup setup;
  setup.environment = {{"PITH_INIT_TIMEOUT", "60"}};
  setup.limit_s = 120;
  CHECK(run(1 + processes, setup, [&](Rank& self) {
          const UniqueId id = *UniqueId::load(self.id().internal);
          const double before_mib = mebibytes("VmHWM:");
          const std::size_t before_open = open_descriptors();
          std::size_t most_open = 0;
          if (self.rank == 0) limit_descriptors(ranks + 24);
          self.meet();
          const double start = now_s();
          if (self.rank == 0) {
            for (int r = 1; r <= processes; ++r) {
              wait_until(
                  [&] {
                    sleep_s(0.01);
                    most_open = std::max(most_open, open_descriptors());
                    return self.slot(r) != 0;
                  },
                  100);
            }
            ensure(!may_leave_table() || most_open <= before_open,
                   std::to_string(most_open) + " files are open, " + std::to_string(before_open) +
                       " were");
            const double took_s = now_s() - start;
            const double took_mib = mebibytes("VmHWM:") - before_mib;
            std::printf("%d ranks met twice in %.2f s, the root took %.1f MiB\n", ranks, took_s,
                        took_mib);
            ensure(took_s < 30, "took " + std::to_string(took_s) + " s");
            // What all hear is a megabyte, and would be a gigabyte were it there for each.
            ensure(sanitized || took_mib < 32, "took " + std::to_string(took_mib) + " MiB");
            return;
          }
          const int first = (self.rank - 1) * ranks / processes;
          const auto results =
              in_threads(ranks / processes, [&](int i) { return start_as(id, first + i, ranks); });
          self.slot(self.rank) = 1;
          for (const std::string& result : results) ensure(result.empty(), result);
        }) == "");
}

// One rank knows from elsewhere that the start-up cannot succeed.
TEST_CASE("an obstacle that one rank knows of ends the start-up for all", "[startup]") {
  CHECK(run(1, alone(), [](Rank&) {
          const UniqueId id = open_root(60);
          const double start = now_s();
          const auto results = in_threads(2, [&](int rank) -> std::string {
            const std::function<Error()> obstacle = [=]() -> Error {
              if (rank != 1 || now_s() - start < 0.5) return {};
              return {Code::remote, "rank 2: its process has ended"};
            };
            Expected<Bootstrap> joined = Bootstrap::join(id, rank, 3, 60, {}, obstacle);
            if (!joined) return joined.error().message();
            const auto all = joined->gather("x");
            if (!all) joined->give_up(all.error());
            return all ? "no error" : all.error().message();
          });
          for (const std::string& result : results) {
            ensure(result == "rank 2: its process has ended", result);
          }
          ensure(now_s() - start < 10, "it waited");
        }) == "");
}

TEST_CASE("a start that fails before any rank has come gives its port back", "[startup]") {
  Setup setup;
  setup.limit_s = 60;
  CHECK(run(1, setup, [](Rank&) {
          const auto port = static_cast<std::uint16_t>(free_port());
          const Expected<UniqueId> id = Rendezvous::open("127.0.0.1", 5, {port, port});
          ensure(static_cast<bool>(id), id.error().message());
          Rendezvous::cannot_join(*id, Error(Code::remote, "the members disagree"));
          UniqueId next = *id;
          next.known_before = true;
          // Each attempt asks for the port.
          wait_until([&] { return !Rendezvous::open_at("127.0.0.1", {port, port}, next, 1); });
        }) == "");
}

TEST_CASE("ranks that come late are waited for longer than those that are there and silent",
          "[startup]") {
  CHECK(run(1, alone(), [](Rank&) {
          constexpr double soon_s = 0.5;
          const UniqueId id = open_root(60);
          const double start = now_s();
          const auto results = in_threads(2, [&](int rank) -> std::string {
            if (rank == 1) std::this_thread::sleep_for(std::chrono::seconds(4));
            Expected<Bootstrap> joined = Bootstrap::join(id, rank, 2, StartTimes(60, soon_s));
            if (!joined) return joined.error().message();
            const auto all = joined->gather("x");
            if (!all) return all.error().message();
            if (rank == 0) return joined->gather("y") ? "both have spoken" : "";
            std::this_thread::sleep_for(std::chrono::seconds(5));
            return {};
          });
          for (const std::string& result : results) ensure(result.empty(), result);
          ensure(now_s() - start < 30, "silence was waited for as long as ranks are");
        }) == "");
}

TEST_CASE("all are told that nranks differ", "[startup]") {
  Setup setup;
  setup.environment = {{"PITH_INIT_TIMEOUT", "20"}};
  CHECK(run(2, setup, [](Rank& self) {
          self.slot(self.rank) = static_cast<std::uint64_t>(getpid());
          const pithUniqueId id = self.id();
          self.meet();
          if (self.rank == 1) sleep_s(0.3);
          const double start = now_s();
          pithComm_t comm = nullptr;
          const std::string one = "process " + std::to_string(self.slot(0).load()) + " on ";
          const std::string other = "process " + std::to_string(self.slot(1).load()) + " on ";
          const auto call = [&] {
            fails(pithCommInitRank(&comm, 3 + self.rank, id, self.rank), pithRemoteError,
                  {"rank 1 gives nranks 4, others give 3", one, other, "(rank 0)",
                   "expected the same of all"});
          };
          call();
          self.meet();
          call();  // the same id again, while rank 2 may still come to be told
          ensure(now_s() - start < 10, "waited for the timeout");
          self.meet();
        }) == "");
}

TEST_CASE("an id serves one communicator", "[startup]") {
  // Once all ranks have started nobody listens any more.
  CHECK(run(4, {}, [](Rank& self) {
          const pithUniqueId id = self.id();
          pithComm_t comm = nullptr;
          if (self.rank < 2) ok(pithCommInitRank(&comm, 2, id, self.rank));
          self.meet();
          sleep_s(0.2);
          pithComm_t second = nullptr;
          if (self.rank >= 2) {
            fails(pithCommInitRank(&second, 2, id, self.rank - 2), pithRemoteError,
                  {"cannot reach the bootstrap root", "its ranks have all started",
                   "an id serves one communicator"});
          }
          self.meet();
          ok(pithCommDestroy(comm));
        }) == "");
  // While they start: the first job goes on.
  CHECK(run(1, alone(), [](Rank&) {
          const UniqueId id = open_root(10);
          Expected<Bootstrap> zero = Bootstrap::join(id, 0, 2, 10);
          Expected<Bootstrap> one = Bootstrap::join(id, 1, 2, 10);
          ensure(zero && one, "the first job did not join");
          sleep_s(0.2);
          Expected<Bootstrap> late = Bootstrap::join(id, 1, 2, 10);
          ensure(static_cast<bool>(late), "the handshake failed");
          const std::string text = late->gather("x").error().message();
          for (const std::string& word : {std::string("the id has been used already: all 2 ranks"),
                                          "rank 1 by process " + std::to_string(getpid()),
                                          std::string("expected a new id from pithGetUniqueId")}) {
            ensure(text.find(word) != std::string::npos, text);
          }
          const auto results = in_threads(2, [&](int rank) -> std::string {
            return (rank == 0 ? *zero : *one).gather("x").error().message();
          });
          for (const std::string& result : results) ensure(result.empty(), result);
        }) == "");
}
