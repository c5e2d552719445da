// A child process traces its parent's threads. The parent marks begin and end with a system call
// that nothing else here uses; after the second mark the child exits, which ends the tracing.
#include "frame/system_calls.hpp"

#include <dirent.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <vector>

namespace pith_perf {
namespace {

constexpr long mark = SYS_getppid;
constexpr int syscall_stop = SIGTRAP | 0x80;

enum State : int { forked, may_attach, attached, refused };

// Shared by tracer and traced process.
struct Board {
  std::atomic<int> state;
  std::atomic<std::uint64_t> waiting;
  std::atomic<std::uint64_t> other;
};

bool waits(std::uint64_t number) {
  constexpr std::array<long, 9> names = {SYS_futex,     SYS_sched_yield,     SYS_ppoll,
                                         SYS_pselect6,  SYS_epoll_pwait,     SYS_epoll_pwait2,
                                         SYS_nanosleep, SYS_clock_nanosleep,
#ifdef SYS_poll
                                         SYS_poll
#else
                                         SYS_ppoll
#endif
  };
  const auto is = [number](long name) { return static_cast<std::uint64_t>(name) == number; };
#ifdef SYS_epoll_wait
  if (is(SYS_epoll_wait)) return true;
#endif
  return std::any_of(names.begin(), names.end(), is);
}

std::vector<pid_t> threads_of_this_process() {
  std::vector<pid_t> threads;
  DIR* const folder = opendir("/proc/self/task");
  if (folder == nullptr) return threads;
  while (const dirent* entry = readdir(folder)) {
    const int thread = std::atoi(entry->d_name);
    if (thread > 0) threads.push_back(thread);
  }
  closedir(folder);
  return threads;
}

// Counts the call at which a thread stopped; returns true at the second mark.
bool count_call(pid_t thread, Board& board, int& marks) {
  __ptrace_syscall_info info = {};
  if (ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof(info), &info) <= 0) return false;
  if (info.op != PTRACE_SYSCALL_INFO_ENTRY) return false;
  if (info.entry.nr == static_cast<std::uint64_t>(mark)) return ++marks == 2;
  if (marks == 1) (waits(info.entry.nr) ? board.waiting : board.other).fetch_add(1);
  return false;
}

// In the child: only calls that are allowed after fork in a multi-threaded process.
[[noreturn]] void trace(const std::vector<pid_t>& threads, Board& board) {
  while (board.state.load() != may_attach) sched_yield();
  for (const pid_t thread : threads) {
    if (ptrace(PTRACE_SEIZE, thread, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE) != 0 ||
        ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr) != 0) {
      board.state.store(refused);
      _exit(0);
    }
  }
  // After its first stop a thread stops at every system call.
  std::size_t started = 0;
  int marks = 0;
  for (;;) {
    int status = 0;
    const pid_t thread = waitpid(-1, &status, __WALL);
    if (thread < 0 && errno == EINTR) continue;
    if (thread < 0) _exit(0);
    if (!WIFSTOPPED(status)) continue;
    const int signal = WSTOPSIG(status);
    const bool event = status >> 16 != 0;
    if (signal == syscall_stop && count_call(thread, board, marks)) _exit(0);
    const int deliver = event || signal == syscall_stop ? 0 : signal;
    ptrace(PTRACE_SYSCALL, thread, nullptr, deliver);
    if (event && ++started == threads.size()) board.state.store(attached);
  }
}

// If it returns true the tracer is attached.
bool start_tracer(Board& board, pid_t& tracer) {
  const std::vector<pid_t> threads = threads_of_this_process();
  tracer = fork();
  if (tracer < 0) return false;
  if (tracer == 0) trace(threads, board);
  prctl(PR_SET_PTRACER, tracer);  // needed with Yama; fails harmlessly elsewhere
  board.state.store(may_attach);
  while (board.state.load() != attached && board.state.load() != refused) usleep(100);
  return board.state.load() == attached;
}

}  // namespace

std::optional<SystemCalls> count_system_calls(const std::function<void()>& body) {
  void* const memory =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    body();
    return std::nullopt;
  }
  auto& board = *static_cast<Board*>(memory);
  pid_t tracer = -1;
  const bool counts = start_tracer(board, tracer);
  syscall(mark);
  body();
  syscall(mark);
  if (tracer > 0) waitpid(tracer, nullptr, 0);
  const SystemCalls calls = {board.waiting.load(), board.other.load()};
  munmap(memory, sizeof(Board));
  if (!counts) return std::nullopt;
  return calls;
}

}  // namespace pith_perf
