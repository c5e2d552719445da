#include "processes.hpp"

#include <fmt/core.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <vector>

namespace pith_bench {
namespace {

void kill_all(const std::vector<pid_t>& children) {
  for (const pid_t child : children) kill(child, SIGKILL);
}

// Waits for every child; the first failure ends the rest.
int wait_for(std::vector<pid_t> children) {
  int result = 0;
  while (!children.empty()) {
    int status = 0;
    const pid_t child = waitpid(-1, &status, 0);
    if (child < 0 && errno == EINTR) continue;
    if (child < 0) throw std::runtime_error("waitpid failed");
    std::erase(children, child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    if (WIFSIGNALED(status) && result == 0) {
      fmt::print(stderr, "a rank died of signal {}\n", WTERMSIG(status));
    }
    if (result == 0) kill_all(children);
    result = 1;
  }
  return result;
}

}  // namespace

[[noreturn]] void leave(int status) {
  std::fflush(nullptr);
  _exit(status);
}

int run_processes(int count, const std::function<int(int)>& body) {
  std::vector<pid_t> children;
  std::fflush(nullptr);
  std::signal(SIGCHLD, SIG_DFL);  // were it inherited as ignored, no exit status could be read
  const pid_t parent = getpid();
  for (int number = 0; number < count; ++number) {
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) leave(1);
      leave(body(number));
    }
    if (child < 0) {
      kill_all(children);
      throw std::runtime_error(fmt::format("fork of rank {} failed", number));
    }
    children.push_back(child);
  }
  return wait_for(children);
}

int core_count() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return 1;
  return CPU_COUNT(&allowed);
}

void pin_to_core(int number) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  int skip = number % CPU_COUNT(&allowed);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed) || skip-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    if (sched_setaffinity(0, sizeof(one), &one) != 0) {
      throw std::runtime_error(fmt::format("cannot bind rank {} to core {}", number, core));
    }
    return;
  }
}

}  // namespace pith_bench
