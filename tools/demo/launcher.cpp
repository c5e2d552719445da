#include "tools/demo/launcher.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "tools/demo/session.hpp"

namespace pith::demo {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int poll_interval_ms = 200;
// Time for ranks that fail because of another one's failure to end, too, before the report.
constexpr auto settle = std::chrono::milliseconds(200);
constexpr auto grace = std::chrono::seconds(2);

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

std::vector<std::string> rank_arguments(const Options& options, int rank, int control_fd,
                                        int board_fd) {
  std::vector<std::string> arguments = {"pith-demo",
                                        fmt::format("--ranks={}", options.ranks),
                                        fmt::format("--epochs={}", options.epochs),
                                        fmt::format("--batch={}", options.batch),
                                        fmt::format("--rate={}", options.rate),
                                        fmt::format("--seed={}", options.seed),
                                        fmt::format("--data={}", options.data),
                                        fmt::format("--rank={}", rank),
                                        fmt::format("--control-fd={}", control_fd),
                                        fmt::format("--board-fd={}", board_fd)};
  if (!options.scheme.empty()) {
    arguments.push_back("--scheme=" + options.scheme);
    arguments.push_back(fmt::format("--scheme-steps={}", options.scheme_steps));
    arguments.push_back(fmt::format("--link={}", fmt::join(options.links_mbit, ",")));
  }
  return arguments;
}

// In the forked child: only calls that are allowed between fork and exec.
[[noreturn]] void become_rank(pid_t launcher, pid_t holder, int control_fd, int board_fd,
                              char* const* arguments) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(1);  // it died before the line above
  if (holder != 0 && !Hosts::enter(holder)) _exit(1);
  fcntl(control_fd, F_SETFD, 0);
  fcntl(board_fd, F_SETFD, 0);
  execv("/proc/self/exe", arguments);
  _exit(127);
}

std::string how_it_ended(int status) {
  if (!WIFSIGNALED(status)) return fmt::format("exited with status {}", WEXITSTATUS(status));
  return fmt::format("was killed by signal {} ({})", WTERMSIG(status),
                     sigdescr_np(WTERMSIG(status)));
}

bool succeeded(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }

}  // namespace

RankProcesses::RankProcesses(const Options& options, const Board& board, Hosts* hosts)
    : hosts_(hosts) {
  // If all ranks are on this host nothing is opened to a network.
  if (hosts == nullptr) setenv("PITH_IFNAME", "lo", 0);
  processes_.reserve(static_cast<std::size_t>(options.ranks));
  try {
    for (int rank = 0; rank < options.ranks; ++rank) {
      start(options, board, rank, hosts == nullptr ? 0 : hosts->holder(rank));
    }
  } catch (...) {
    end_all();
    throw;
  }
}

RankProcesses::~RankProcesses() {
  end_all();
  for (const Process& process : processes_) close(process.control_fd);
}

void RankProcesses::start(const Options& options, const Board& board, int rank, pid_t holder) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) fail("socketpair");
  std::vector<std::string> arguments = rank_arguments(options, rank, ends[1], board.fd());
  std::vector<char*> pointers;
  pointers.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);

  const pid_t launcher = getpid();
  const pid_t pid = fork();
  if (pid == 0) become_rank(launcher, holder, ends[1], board.fd(), pointers.data());
  const int fork_error = errno;
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    errno = fork_error;
    fail("fork");
  }
  processes_.push_back({rank, pid, ends[0], 0});
}

// Nothing to read means that rank 0 has ended, which the caller detects itself.
void RankProcesses::serve_rank0() {
  const int fd = processes_[0].control_fd;
  pithUniqueId id{};
  static_assert(sizeof(double) < sizeof(id));
  const ssize_t got = recv(fd, &id, sizeof(id), MSG_DONTWAIT);
  if (got == sizeof(id)) return pass_on(id);
  if (got != sizeof(double)) return;
  double bits_per_s = 0.0;
  std::memcpy(&bits_per_s, &id, sizeof(bits_per_s));
  hosts_->set_rate(bits_per_s);
  send(fd, &bits_per_s, sizeof(bits_per_s), MSG_NOSIGNAL);
}

// Rank 0 must create the id: the process that creates it has to stay alive.
void RankProcesses::pass_on(const pithUniqueId& id) {
  for (const Process& process : processes_) {
    if (process.rank != 0) send(process.control_fd, &id, sizeof(id), MSG_NOSIGNAL);
  }
}

bool RankProcesses::reap(Process& process) {
  if (process.pid == 0) return true;
  if (waitpid(process.pid, &process.status, WNOHANG) != process.pid) return false;
  process.pid = 0;
  return true;
}

void RankProcesses::run(const Deadline& deadline) {
  for (std::size_t running = processes_.size(); running > 0;) {
    std::vector<pollfd> watched;
    for (const Process& process : processes_) {
      if (process.pid != 0) watched.push_back({process.control_fd, POLLIN, 0});
    }
    poll(watched.data(), watched.size(), poll_interval_ms);
    if (processes_[0].pid != 0 && (watched[0].revents & POLLIN) != 0) serve_rank0();
    running = 0;
    bool failed = false;
    for (Process& process : processes_) {
      if (!reap(process)) {
        ++running;
      } else if (!succeeded(process.status)) {
        failed = true;
      }
    }
    if (failed) throw std::runtime_error(describe_failures());
    if (running > 0 && deadline.is_over()) {
      throw TimeOver(fmt::format("{} ranks still ran when their {:.0f} s were over; ended them",
                                 running, deadline.seconds()));
    }
  }
}

std::string RankProcesses::describe_failures() {
  std::this_thread::sleep_for(settle);
  std::string text;
  for (Process& process : processes_) {
    if (!reap(process) || succeeded(process.status)) continue;
    text += fmt::format("{}rank {} {}", text.empty() ? "" : ", ", process.rank,
                        how_it_ended(process.status));
  }
  return text + "; ended the others";
}

void RankProcesses::end_all() {
  for (const Process& process : processes_) {
    if (process.pid != 0) kill(process.pid, SIGTERM);
  }
  const Clock::time_point end = Clock::now() + grace;
  for (Process& process : processes_) {
    while (!reap(process) && Clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    if (process.pid == 0) continue;
    kill(process.pid, SIGKILL);
    waitpid(process.pid, &process.status, 0);
    process.pid = 0;
  }
}

pithUniqueId agree_on_id(const Options& options) {
  pithUniqueId id{};
  if (options.rank == 0) {
    check(pithGetUniqueId(&id), "pithGetUniqueId");
    if (send(options.control_fd, &id, sizeof(id), MSG_NOSIGNAL) != sizeof(id)) {
      fail("sending the unique id");
    }
  } else if (recv(options.control_fd, &id, sizeof(id), 0) != sizeof(id)) {
    throw std::runtime_error("rank 0 ended before it had sent the unique id");
  }
  return id;
}

void ask_for_links(const Options& options, double bits_per_s) {
  const bool asked =
      send(options.control_fd, &bits_per_s, sizeof(bits_per_s), MSG_NOSIGNAL) == sizeof(bits_per_s);
  if (!asked ||
      recv(options.control_fd, &bits_per_s, sizeof(bits_per_s), 0) != sizeof(bits_per_s)) {
    throw std::runtime_error("the launcher ended before it had changed the links");
  }
}

}  // namespace pith::demo
