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

}  // namespace

TEST_CASE("at debug a start tells all that it does", "[start-log]") {
  Setup setup = with("debug", {{"PITH_LANES", "2"}, {"PITH_SECRET", "swordfish"}});
  setup.transport = "shm,tcp";
  CHECK(run(3, setup, [](Rank& self) {
          const std::string text = start_and_hear(self);
          const std::string own = "communicator, rank " + std::to_string(self.rank) + " of 3: ";
          has(text, {own, "PITH_TRANSPORT=shm,tcp", "PITH_LANES=2", "PITH_SECRET=(set)",
                     "127.0.0.1:", "PITH_IFNAME=lo", own + "ready after "});
          ensure(text.find("swordfish") == std::string::npos, "the secret is told");
          if (self.rank == 0) has(text, {"communicator of 3 ranks ready after ", "3 pairs by shm"});
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

TEST_CASE("settings: where they come from", "[settings]") {
  setenv("PITH_LANES", "0", 1);  // as by default, and yet from there
  set_defaults({{"TIMEOUT", "0"}});
  CHECK(origin_of("LANES") == "environment");
  CHECK(origin_of("TIMEOUT") == "library");
  CHECK(origin_of("CHUNK") == "default");
  const Expected<Settings> settings = settings_from_environment();
  REQUIRE(settings);
  const std::vector<std::string> changed = changed_settings(*settings);
  CHECK(std::find(changed.begin(), changed.end(), "PITH_LANES=0 (environment)") != changed.end());
  CHECK(std::find(changed.begin(), changed.end(), "PITH_TIMEOUT=0 (library)") != changed.end());
  set_defaults({});
  unsetenv("PITH_LANES");
}
