// Tests how a CUDA driver behaves where its documentation is silent, and how long it takes, before
// anything of Pith runs on it.
//  driver_facts [--seconds N] [NAME...]
// runs the probes with these name prefixes, or all. Each probe is a process with a limit of five
// seconds, or N, so that one that hangs costs no more. Prints one line per fact: PROBE NAME: VALUE.
//  driver_facts hold PID
// keeps the device's context as long as its parent, process PID, lives.
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

#include "tools/gpu/driver_extra.hpp"

namespace pith::facts {

using namespace cuda;

namespace {

std::uint64_t limit_ns = 5'000'000'000;
constexpr std::uint64_t start_limit_ns = 25'000'000'000;  // for creating a context

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

// The most important ones first.
constexpr Probe probes[] = {
    {"device", probe_device, nullptr, "which device and driver the rest is about"},
    {"captured", probe_captured, nullptr, "captured calls: flags by memory operations in graphs"},
    {"under_free", probe_under_free, nullptr,
     "launched steps beside a thread that frees; the failure probe asks cuStreamQuery"},
    {"served", probe_served, nullptr, "worker steps: resident kernels that take them"},
    {"queues", probe_queues, nullptr, "launched steps while users' streams wait in calls"},
    {"priorities", probe_priorities, nullptr,
     "launched steps beside PyTorch's high-priority streams that wait in calls"},
    {"beside_kernel", probe_beside_kernel, nullptr, "worker steps of two processes"},
    {"beside_wait", probe_beside_wait, nullptr, "launched steps of two processes"},
    {"conditional", probe_conditional, nullptr, "calls captured into bodies of conditional nodes"},
    {"first_worker", probe_first_worker, nullptr,
     "a worker's first launch: its stack makes the driver find more local memory"},
    {"lazy_loading", probe_lazy_loading, nullptr,
     "users' kernels first launched while a stream waits in a call"},
    {"local_memory", probe_local_memory, nullptr,
     "users' kernels of a larger stack while a stream waits in a call"},
    {"copies", probe_copies, nullptr, "staging and users' copies while others wait behind calls"},
    {"copies", probe_copies, "32", "the same with more hardware queues"},
    {"behind_mem_free", probe_behind_mem_free, nullptr, "all steps beside a thread that frees"},
    {"behind_free_kernel", probe_behind_free_kernel, nullptr,
     "all steps beside a thread that frees while a worker runs"},
    {"blocked_by_wait", probe_blocked_by_wait, nullptr,
     "which calls the library may make while a stream waits in a call"},
    {"blocked_by_kernel", probe_blocked_by_kernel, nullptr,
     "which calls the library may make while a worker runs"},
    {"queues", probe_queues, "1", "PITH_CUDA_STEPS=auto takes workers there"},
    {"queues", probe_queues, "8", "launched steps with as many queues as usual"},
    {"queues", probe_queues, "32", "launched steps with the most queues"},
    {"trips", probe_trips, nullptr, "latency of small calls"},
    {"ipc", probe_ipc, nullptr, "direct copies between processes, and memory that its owner frees"},
    {"ipc_blocking", probe_ipc_blocking, nullptr, "mapping by a helper thread during calls"},
    {"memory", probe_memory, nullptr,
     "whose memory is whose, and what another process may map: expandable segments"},
    {"mapped", probe_mapped, nullptr,
     "views of mapped memory: what tells its parts, who may touch it"},
    {"pools", probe_pools, nullptr, "the same of cudaMallocAsync's memory"},
    {"beside_idle", probe_beside_idle, nullptr, "latency beside another process"},
    {"pointers", probe_pointers, nullptr, "telling device memory from the host's in each call"},
    {"streams", probe_streams, nullptr, "calls on the legacy and per-thread streams"},
    {"start", probe_start, nullptr, "what a communicator's first one costs"},
    {"costs", probe_costs, nullptr, "what a call costs its caller"},
    {"behind_host_free", probe_behind_host_free, nullptr, "steps beside cuMemFreeHost"},
    {"behind_stream_create", probe_behind_stream_create, nullptr, "steps beside new streams"},
    {"behind_synchronize", probe_behind_synchronize, nullptr, "steps beside cuCtxSynchronize"},
};
// Run only on request: for the tests of this program.
constexpr Probe own_probes[] = {{"own_hang", hang, nullptr, "its tests"},
                                {"own_crash", crash, nullptr, "its tests"}};

void run_child(const Probe& probe) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (probe.connections) setenv("CUDA_DEVICE_MAX_CONNECTIONS", probe.connections, 1);
  probe.run();
  // Not exit(): destructors of a driver with held streams could wait for ever.
  std::_Exit(0);
}

// Why the child failed; empty if it succeeded.
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

// True if the probe completed.
bool run_probe(const Probe& probe) {
  std::memset(static_cast<void*>(&page()), 0, sizeof(Page));
  std::fflush(nullptr);
  const std::uint64_t begin = now_ns();
  const pid_t child = fork();
  if (child == 0) run_child(probe);
  const std::string fate = fate_of(child);
  std::string name = probe.name;
  if (probe.connections) name += std::string("[connections=") + probe.connections + "]";
  std::printf("%s matters for: %s\n", name.c_str(), probe.why);
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

// Keeps the device's context until the parent or a signal ends this process: without any context
// each process would initialise the device anew, for a second or more.
int hold(pid_t starter) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (starter != getppid()) return 0;
  const Gpu gpu;
  int mode = 0;
  cu().device_attribute(&mode, kDeviceComputeMode, 0);
  if (mode == kComputeModeExclusiveProcess) {
    std::printf("driver_facts: holds no context, for this device takes one process only\n");
    return 0;
  }
  std::printf("driver_facts: holds a context\n");
  std::fflush(stdout);
  for (;;) pause();
}

int run(std::vector<std::string> arguments) {
  if (arguments.size() == 2 && arguments[0] == "hold") {
    return hold(static_cast<pid_t>(std::strtol(arguments[1].c_str(), nullptr, 10)));
  }
  if (arguments.size() > 1 && arguments[0] == "--seconds") {
    limit_ns = std::strtoull(arguments[1].c_str(), nullptr, 10) * 1'000'000'000;
    arguments.erase(arguments.begin(), arguments.begin() + 2);
  }
  return probe_all(arguments);
}

}  // namespace
}  // namespace pith::facts

int main(int argc, char** argv) { return pith::facts::run({argv + 1, argv + argc}); }
