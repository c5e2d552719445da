#include "processes.hpp"

#include <fmt/core.h>
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
      std::fflush(stdout);  // ends an unfinished table row
      fmt::print(stderr, "\nprocess {}, a rank, died of signal {}\n", child, WTERMSIG(status));
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
  std::signal(SIGCHLD, SIG_DFL);  // with SIGCHLD ignored no exit status could be read
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

}  // namespace pith_bench
