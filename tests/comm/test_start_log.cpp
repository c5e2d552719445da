// What PITH_LOG says of a start, and variables that are no settings.
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "../api/ranks.hpp"
#include "catch.hpp"
#include "settings/settings_origin.hpp"
#include "startup/start_log.hpp"

using namespace pith;
using namespace ranks;

namespace {

// What this process writes to standard error from here on.
class Overheard {
 public:
  Overheard() : file_(memfd_create("stderr", 0)) { dup2(file_, STDERR_FILENO); }
  ~Overheard() { close(file_); }
  Overheard(const Overheard&) = delete;
  Overheard& operator=(const Overheard&) = delete;

  std::string text() const {
    std::string text(static_cast<std::size_t>(lseek(file_, 0, SEEK_END)), '\0');
    const ssize_t got = pread(file_, text.data(), text.size(), 0);
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    return text;
  }

 private:
  int file_;
};

void has(const std::string& text, std::initializer_list<std::string> words) {
  for (const std::string& word : words) {
    ensure(text.find(word) != std::string::npos, "no \"" + word + "\" in:\n" + text);
  }
}

void lacks(const std::string& text, const std::string& word) {
  ensure(text.find(word) == std::string::npos, "\"" + word + "\" in:\n" + text);
}

std::string start_and_hear(Rank& self) {
  const Overheard overheard;
  const Comm comm(self.join());
  self.meet();
  return overheard.text();
}

Setup with(const char* level, std::vector<std::pair<std::string, std::string>> more = {}) {
  Setup setup;
  setup.environment = std::move(more);
  setup.environment.emplace_back("PITH_LOG", level);
  return setup;
}

// More than any wire takes of what nobody receives.
constexpr std::size_t many = 16'000'000;

Setup slow_to_send(Setup link) {
  link.environment.emplace_back("PITH_LOG", "warn");
  link.environment.emplace_back("PITH_TIMEOUT", "2");
  link.environment.emplace_back("PITH_LANES", "1");
  return link;
}

}  // namespace

TEST_CASE("at debug a start tells all that it does", "[start-log]") {
  Setup setup = with("debug", {{"PITH_LANES", "2"}, {"PITH_SECRET", "swordfish"}});
  setup.transport = "shm,tcp";
  CHECK(run(3, setup, [](Rank& self) {
          const std::string text = start_and_hear(self);
          const std::string own = "communicator, rank " + std::to_string(self.rank) + " of 3: ";
          has(text,
              {own + "settings: ", "PITH_TRANSPORT=shm,tcp (environment)",
               "PITH_LANES=2 (environment)", "PITH_SECRET=(set)",
               own + "met the others at 127.0.0.1:",
               "listens at 127.0.0.1 (PITH_IFNAME=lo); interfaces are lo (", own + "reaches ranks ",
               "by shm", own + "algorithms walk the ranks", own + "ready after ", "bootstrap root ",
               "control plane ", "introductions ", "shared memory ", "connections ", "all ready "});
          lacks(text, "swordfish");
          if (self.rank == 0) {
            has(text, {"bootstrap root: interfaces are ", "lo (127.0.0.1, loopback)",
                       "ranks 0-2 share a host", "communicator of 3 ranks ready after ",
                       "on 1 host, 3 pairs by shm"});
          } else {
            lacks(text, "share a host");
          }
        }) == "");
}

TEST_CASE("a call that goes no further is told of, and what came before it", "[start-log]") {
  const auto body = [](Rank& self) {
    const Overheard overheard;
    const Comm comm(self.join());
    float sums[10] = {};
    const auto sum = [&](std::size_t count) {
      return pithAllReduce(sums, sums, count, pithFloat32, pithSum, comm, nullptr);
    };
    ok(sum(7));
    ok(sum(8));
    self.meet();
    if (self.rank == 2) return sleep_s(3.2);
    fails(sum(10), pithRemoteError, {"rank 2"});
    has(overheard.text(),
        {"rank " + std::to_string(self.rank) + " has waited", "in call 3 (allreduce of 10 ",
         "its last calls:", "call 1: allreduce of 7 float, sum, done ", " s ago, after 0.",
         "call 2: allreduce of 8 float, sum, done ",
         "call 3: allreduce of 10 float, sum, running for "});
    if (self.rank != 0) return;
    has(overheard.text(), {"for rank 2 in call 3", "waits for step ", " of rank 2"});
  };
  CHECK(run(3, with("warn", {{"PITH_TIMEOUT", "2"}}), body) == "");
}

// Where nobody has died, and where a failure came before it.
TEST_CASE("a shrink that a rank does not come to is told of", "[start-log]") {
  for (const bool revoked : {false, true}) {
    Setup setup = with("warn", {{"PITH_TIMEOUT", "2"}});
    setup.may_be_killed = true;
    INFO((revoked ? "a rank has died" : "all live"));
    CHECK(run(4, setup, [&](Rank& self) {
            const Overheard overheard;
            const Comm comm(self.join());
            self.meet();
            if (self.rank == 3 && revoked) self.die();
            if (self.rank == 2) return sleep_s(3.5);
            float sums[10] = {};
            if (revoked) {
              fails(pithAllReduce(sums, sums, 10, pithFloat32, pithSum, comm, nullptr),
                    pithRemoteError, {"rank 3"});
            }
            pithComm_t made = nullptr;
            fails(pithCommShrink(comm, nullptr, 0, &made, nullptr, 0), pithRemoteError,
                  {"rank 2 did not take part within 2 s"});
            const std::string text = overheard.text();
            const std::string line = "rank " + std::to_string(self.rank) + " has waited 1 s for ";
            has(text, {line + (revoked ? "rank 2 in shrink" : "rank 2 in call 1 (shrink)")});
            ensure(text.find(" has waited ") == text.rfind(" has waited "), text);
          }) == "");
  }
}

TEST_CASE("messages that go no further are told of", "[start-log]") {
  CHECK(run(3, slow_to_send({}), [](Rank& self) {
          const Overheard overheard;
          const Comm comm(self.join());
          std::vector<float> values(many);
          const auto send = [&](std::size_t count, int to) {
            return pithSend(values.data(), count, pithFloat32, to, comm, nullptr);
          };
          const auto receive = [&](std::size_t count, int from) {
            return pithRecv(values.data(), count, pithFloat32, from, comm, nullptr);
          };
          if (self.rank == 0) ok(send(8, 1));
          if (self.rank == 1) ok(receive(8, 0));
          self.meet();
          if (self.rank == 1) {
            return wait_until([&] { return self.slot(0) == 1 && self.slot(2) == 1; });
          }
          if (self.rank == 0) {
            fails(receive(9, 1), pithRemoteError, {"has waited"});
            self.slot(0) = 1;
            return has(
                overheard.text(),
                {"rank 0 has waited 1 s for rank 1 in recv of 9 float from rank 1",
                 "its last calls:\n  send of 8 float to rank 1, done ",
                 "\n  recv of 9 float from rank 1, running for ", " s, 0 of 36 bytes have come\n"});
          }
          fails(send(values.size(), 1), pithRemoteError, {"has waited"});
          self.slot(2) = 1;
          has(overheard.text(), {"rank 2 has waited 1 s for rank 1 in send of 16000000 float to "
                                 "rank 1",
                                 "\n  send of 16000000 float to rank 1, running for ",
                                 " of 64000000 bytes have gone"});
        }) == "");
}

TEST_CASE("names of communicators are told at debug", "[start-log]") {
  CHECK(run(2, with("debug"), [](Rank& self) {
          const Overheard overheard;
          const auto told = [&](const std::string& name) {
            const std::string line =
                "communicator \"" + name + "\": rank " + std::to_string(self.rank) + " of 2\n";
            const std::string text = overheard.text();
            int times = 0;
            for (std::size_t at = 0; (at = text.find(line, at)) != text.npos; ++at) ++times;
            return times;
          };
          pithConfig_t config = PITH_CONFIG_INITIALIZER;
          std::string name = "gradients";
          config.commName = name.c_str();
          pithComm_t made = nullptr;
          ok(pithCommInitRankConfig(&made, 2, self.id(), self.rank, &config));
          const Comm parent(made);
          ensure(told("gradients") == 1, overheard.text());
          name = "overwritten";  // it was copied, and goes on to children
          ok(pithCommSplit(parent, 0, 0, &made, nullptr));
          const Comm heir(made);
          ensure(told("gradients") == 2 && told("overwritten") == 0, overheard.text());
          config.commName = "weights";
          ok(pithCommSplit(parent, 0, 0, &made, &config));
          const Comm other(made);
          ensure(told("gradients") == 2 && told("weights") == 1, overheard.text());
          self.meet();
        }) == "");
}

namespace {

// Two packages with one core each, at two CPUs that this process may use.
struct TwoPackages {
  std::array<int, 2> cpus{};

  static std::optional<TwoPackages> here() {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    sched_getaffinity(0, sizeof allowed, &allowed);
    TwoPackages found;
    std::size_t count = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE && count < 2; ++cpu) {
      if (CPU_ISSET(cpu, &allowed)) found.cpus[count++] = cpu;
    }
    if (count < 2) return {};
    return found;
  }

  void add_to(Setup& setup) const {
    setup.environment.emplace_back(
        "HWLOC_SYNTHETIC", "package:2 core:1 pu:1(indexes=" + std::to_string(cpus[0]) + "," +
                               std::to_string(cpus[1]) + ")");
    setup.environment.emplace_back("HWLOC_THISSYSTEM", "1");
  }

  // Neighbours by number are on different packages.
  void bind(const Rank& self) const {
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(cpus[static_cast<std::size_t>(self.rank % 2)], &own);
    ensure(sched_setaffinity(0, sizeof own, &own) == 0, "cannot be bound");
  }
};

// Where in the result this rank's reductions wrote, by the record of its calls.
std::set<std::string> reduced_offsets(const std::string& trace) {
  std::ifstream file(trace);
  std::set<std::string> offsets;
  std::string recv = "none";
  for (std::string line; std::getline(file, line);) {
    const auto after = [&line](const std::string& key) {
      const std::size_t at = line.find(key);
      if (at == std::string::npos) return std::string();
      const std::size_t begin = at + key.size();
      return line.substr(begin, line.find_first_of(",}", begin) - begin);
    };
    if (after("\"what\":") == "\"recv\"") recv = after("\"buffer\":");
    const bool reduces = after("\"name\":").starts_with("\"reduce");
    if (reduces && after("\"buffer\":") == recv) offsets.insert(after("\"offset\":"));
  }
  return offsets;
}

}  // namespace

TEST_CASE("algorithms walk the ranks package by package", "[start-log][order]") {
  const std::optional<TwoPackages> packages = TwoPackages::here();
  if (!packages) {
    WARN("one CPU is allowed: nobody can be bound apart");
    return;
  }
  struct Case {
    std::vector<std::pair<std::string, std::string>> environment;
    std::string says;
    std::array<int, 4> places;
  };
  const Case cases[] = {
      {{}, "in the order 0,2,1,3 (PITH_ORDER=topology)", {0, 2, 1, 3}},
      {{{"PITH_ORDER", "rank"}}, "as they are numbered (PITH_ORDER=rank)", {0, 1, 2, 3}},
      {{{"PITH_DETERMINISTIC", "1"}}, "as they are numbered", {0, 1, 2, 3}},
  };
  for (const char* transport : {"shm", "tcp"}) {
    for (const Case& one : cases) {
      INFO(transport << ": " << one.says);
      const std::string prefix = "/tmp/pith-order-" + std::to_string(getpid());
      Setup setup = with("debug", one.environment);
      setup.transport = transport;
      setup.environment.emplace_back("PITH_ALGO", "allreduce:two_shot");
      setup.environment.emplace_back("PITH_TRACE", prefix);
      packages->add_to(setup);
      CHECK(run(4, setup, [&](Rank& self) {
              packages->bind(self);
              const Overheard overheard;
              constexpr std::size_t count = 4096;
              const std::vector<float> ones(count, 1);
              std::vector<float> sums(count);
              {
                const Comm comm(self.join());
                ok(pithAllReduce(ones.data(), sums.data(), count, pithFloat32, pithSum, comm,
                                 nullptr));
                self.meet();
              }
              ensure(sums == std::vector<float>(count, 4), "a wrong sum");
              has(overheard.text(), {"algorithms walk the ranks " + one.says});
              // Two-shot: whoever is at place p reduces block p.
              const std::string trace = prefix + ".rank" + std::to_string(self.rank) + ".jsonl";
              const std::set<std::string> offsets = reduced_offsets(trace);
              unlink(trace.c_str());
              const int place = one.places[static_cast<std::size_t>(self.rank)];
              const std::size_t block = count / 4 * sizeof(float);
              const std::string own = std::to_string(static_cast<std::size_t>(place) * block);
              std::string text;
              for (const std::string& offset : offsets) text += " " + offset;
              ensure(offsets == std::set<std::string>{own},
                     "reduces at" + text + " and not at " + own);
            }) == "");
    }
  }
}

TEST_CASE("at info a start is one line of rank 0, at warn nothing", "[start-log]") {
  for (const char* level : {"info", "warn"}) {
    for (const Way way : {Way::processes, Way::all}) {
      Setup setup = with(level);
      setup.way = way == Way::all ? Way::alone : way;
      const bool all = way == Way::all;
      INFO(level << (all ? " threads" : ""));
      CHECK(run(all ? 1 : 3, setup, [&](Rank& self) {
              std::string text;
              if (all) {
                const Overheard overheard;
                pithComm_t comms[2];
                ok(pithCommInitAll(comms, 2, nullptr));
                for (pithComm_t comm : comms) ok(pithCommDestroy(comm));
                text = overheard.text();
              } else {
                text = start_and_hear(self);
              }
              const bool says = self.rank == 0 && std::string(level) == "info";
              ensure(std::count(text.begin(), text.end(), '\n') == (says ? 1 : 0), text);
              if (says) has(text, {"communicator of ", " ranks ready after "});
              if (says && all) has(text, {"threads of one process"});
            }) == "");
    }
  }
}

TEST_CASE("variables that look like settings are told of once", "[start-log]") {
  const Setup setup = with("warn", {{"PITH_TRANSPROT", "tcp"}, {"PITH_XYZZY_PLUGH", "1"}});
  CHECK(run(2, setup, [](Rank& self) {
          const Overheard overheard;
          for (int round = 0; round < 2; ++round) {
            pithComm_t comm = nullptr;
            ok(pithCommInitRank(&comm, 2, self.id(round), self.rank));
            self.meet();
            ok(pithCommDestroy(comm));
          }
          const std::string text = overheard.text();
          if (self.rank != 0) return ensure(text.empty(), text);
          has(text, {"PITH_TRANSPROT is set, and there is no such setting: did you mean "
                     "PITH_TRANSPORT?",
                     "PITH_XYZZY_PLUGH is set, and there is no such setting"});
          ensure(std::count(text.begin(), text.end(), '\n') == 2, text);
        }) == "");
}

TEST_CASE("a root that is no address of rank 0's host is said to be one", "[start-log]") {
  CHECK(run(2, with("warn", {{"PITH_INSECURE", "1"}}), [](Rank& self) {
          const Overheard overheard;
          const std::string port = std::to_string(23'000 + getppid() % 5'000);
          setenv("PITH_RANK", std::to_string(self.rank).c_str(), 1);
          setenv("PITH_SIZE", "2", 1);
          // Rank 0 is behind it, says its setting; the other one knows better.
          setenv("PITH_ROOT", ((self.rank == 0 ? "192.0.2.1:" : "127.0.0.1:") + port).c_str(), 1);
          pithComm_t made = nullptr;
          ok(pithCommInitEnv(&made));
          const Comm comm(made);
          self.meet();
          const std::string text = overheard.text();
          if (self.rank != 0) return lacks(text, "router");
          has(text, {"rank 0 is to listen at 192.0.2.1 port " + port + ", by PITH_ROOT",
                     "no address of this host (", "127.0.0.1", "router"});
        }) == "");
}

TEST_CASE("settings: names that were probably meant", "[settings]") {
  CHECK(nearest_setting("TRANSPROT") == "TRANSPORT");
  CHECK(nearest_setting("transport") == "TRANSPORT");
  CHECK(nearest_setting("IF_NAME") == "IFNAME");
  CHECK(nearest_setting("ALG") == "ALGO");
  CHECK(nearest_setting("INITTIMEOUT") == "INIT_TIMEOUT");
  CHECK(nearest_setting("XYZZY_PLUGH").empty());
}

TEST_CASE("settings: where they come from", "[settings]") {
  setenv("PITH_LANES", "4", 1);  // as by default, and yet from there
  set_defaults({{"TIMEOUT", "0"}});
  CHECK(origin_of("LANES") == "environment");
  CHECK(origin_of("TIMEOUT") == "library");
  CHECK(origin_of("CHUNK") == "default");
  const Expected<Settings> settings = settings_from_environment();
  REQUIRE(settings);
  const std::vector<std::string> changed = changed_settings(*settings);
  CHECK(std::find(changed.begin(), changed.end(), "PITH_LANES=4 (environment)") != changed.end());
  CHECK(std::find(changed.begin(), changed.end(), "PITH_TIMEOUT=0 (library)") != changed.end());
  set_defaults({});
  unsetenv("PITH_LANES");
}

TEST_CASE("ranges of ranks", "[start-log]") {
  const auto text = [](const std::vector<int>& numbers) { return ranges(numbers); };
  CHECK(text({}).empty());
  CHECK(text({3}) == "3");
  CHECK(text({0, 1, 2, 5, 7, 8}) == "0-2,5,7-8");
}
