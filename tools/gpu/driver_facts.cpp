// What a CUDA driver does where its documentation is silent, and how long it takes: asked of the
// driver itself, before anything of Pith runs on it.
//   driver_facts [--seconds N] [NAME...]
// runs the probes whose names begin so, or all. A probe is a process of its own and has five
// seconds, or N, so that one that hangs costs no more. One line a fact: PROBE NAME: VALUE.
#include "tools/gpu/driver_facts.hpp"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace pith::facts {
namespace {

std::uint64_t limit_ns = 5'000'000'000;
constexpr std::uint64_t start_limit_ns = 25'000'000'000;  // until the driver has made a context

void hang() {
  const Gpu gpu;
  say("before", "said");
  stage("waiting for ever");
  for (;;) pause();
}
void crash() {
  const Gpu gpu;
  std::raise(SIGSEGV);
}

// The most telling first.
constexpr Probe probes[] = {
    {"device", probe_device, nullptr},
    {"captured", probe_captured, nullptr},
    {"behind_mem_free", probe_behind_mem_free, nullptr},
    {"behind_free_kernel", probe_behind_free_kernel, nullptr},
    {"blocked_by_wait", probe_blocked_by_wait, nullptr},
    {"blocked_by_kernel", probe_blocked_by_kernel, nullptr},
    {"queues", probe_queues, nullptr},
    {"queues", probe_queues, "1"},
    {"queues", probe_queues, "8"},
    {"queues", probe_queues, "32"},
    {"trips", probe_trips, nullptr},
    {"served", probe_served, nullptr},
    {"ipc", probe_ipc, nullptr},
    {"ipc_blocking", probe_ipc_blocking, nullptr},
    {"beside_idle", probe_beside_idle, nullptr},
    {"beside_wait", probe_beside_wait, nullptr},
    {"beside_kernel", probe_beside_kernel, nullptr},
    {"pointers", probe_pointers, nullptr},
    {"streams", probe_streams, nullptr},
    {"start", probe_start, nullptr},
    {"costs", probe_costs, nullptr},
    {"pools", probe_pools, nullptr},
    {"mapped", probe_mapped, nullptr},
    {"behind_host_free", probe_behind_host_free, nullptr},
    {"behind_stream_create", probe_behind_stream_create, nullptr},
    {"behind_synchronize", probe_behind_synchronize, nullptr},
};
// Run only when they are asked for: what the tests of this program look at.
constexpr Probe own_probes[] = {{"own_hang", hang, nullptr}, {"own_crash", crash, nullptr}};

void run_child(const Probe& probe) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (probe.connections) setenv("CUDA_DEVICE_MAX_CONNECTIONS", probe.connections, 1);
  probe.run();
  // Not exit: destructors of a driver that is still held could wait for ever.
  std::_Exit(0);
}

// Empty where it ended well.
std::string fate_of(pid_t child) {
  const std::uint64_t forked = now_ns();
  for (int status = 0;;) {
    if (waitpid(child, &status, WNOHANG) == child) {
      if (WIFSIGNALED(status)) return "ended by signal " + std::to_string(WTERMSIG(status));
      return WEXITSTATUS(status) == 0 ? "" : "exit status " + std::to_string(WEXITSTATUS(status));
    }
    const std::uint64_t begun = page().begun_ns;
    if (begun > 0 ? now_ns() - begun > limit_ns : now_ns() - forked > start_limit_ns) break;
    usleep(500);
  }
  const std::string at = page().stage;
  kill(child, SIGKILL);
  if (!wait_for([&] { return waitpid(child, nullptr, WNOHANG) == child; }, 5000)) {
    return "HANGS in: " + at + "; and does not die";
  }
  return "HANGS in: " + at;
}

// True where the probe came to its end.
bool run_probe(const Probe& probe) {
  std::memset(static_cast<void*>(&page()), 0, sizeof(Page));
  std::fflush(nullptr);
  const std::uint64_t begin = now_ns();
  const pid_t child = fork();
  if (child == 0) run_child(probe);
  const std::string fate = fate_of(child);
  std::string name = probe.name;
  if (probe.connections) name += std::string("[connections=") + probe.connections + "]";
  for (const char* line = page().text; *line;) {
    const char* end = std::strchr(line, '\n');
    if (!end) break;
    std::printf("%s %.*s\n", name.c_str(), static_cast<int>(end - line), line);
    line = end + 1;
  }
  std::printf("%s ended: %s (%.1f s)\n", name.c_str(), fate.empty() ? "yes" : fate.c_str(),
              1e-9 * static_cast<double>(now_ns() - begin));
  std::fflush(nullptr);
  return fate.empty();
}

bool asked_for(const Probe& probe, const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return std::string(probe.name).starts_with(name);
  });
}

int probe_all(const std::vector<std::string>& names) {
  int failed = 0;
  for (const Probe& probe : probes) {
    if (names.empty() || asked_for(probe, names)) failed += !run_probe(probe);
  }
  for (const Probe& probe : own_probes) {
    if (asked_for(probe, names)) failed += !run_probe(probe);
  }
  std::printf("driver_facts: %d probes did not end by themselves\n", failed);
  return failed > 0 ? 1 : 0;
}

int run(std::vector<std::string> arguments) {
  if (arguments.size() > 1 && arguments[0] == "--seconds") {
    limit_ns = std::strtoull(arguments[1].c_str(), nullptr, 10) * 1'000'000'000;
    arguments.erase(arguments.begin(), arguments.begin() + 2);
  }
  return probe_all(arguments);
}

}  // namespace
}  // namespace pith::facts

int main(int argc, char** argv) { return pith::facts::run({argv + 1, argv + argc}); }
