#include "links.hpp"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <system_error>

#include "link_probe.hpp"
#include "tools/files.hpp"

namespace pith_info {

namespace {

std::runtime_error failure(const char* call) {
  return std::runtime_error(fmt::format("{}: {}", call, pithGetLastError(nullptr)));
}

std::string time_of(double seconds) {
  for (const auto& [unit, name] : {std::pair{1.0, "s"}, {1e-3, "ms"}, {1e-6, "us"}}) {
    if (seconds >= unit) return fmt::format("{:.4g} {}", seconds / unit, name);
  }
  return fmt::format("{:.4g} ns", seconds * 1e9);
}

// A standard deviation of the logarithm as a factor's excess: 5 %.
std::string doubt_of(const pith::Estimated& estimate) {
  return fmt::format("{:.2g} %", 100 * std::expm1(estimate.log_sd));
}

void print(const ProbedLinks& found) {
  fmt::print("{:<12} {:>11} {:>9} {:>11} {:>9} {:>10} {:>8}  {}\n", "link", "a message", "+-",
             "a byte", "+-", "GB/s", "samples", "measured between");
  for (const ProbedLink& link : found.links) {
    const pith::Estimated alpha = link.estimate->alpha();
    const pith::Estimated beta = link.estimate->beta();
    fmt::print("{:<12} {:>11} {:>9} {:>11} {:>9} {:>10.4g} {:>8}  {}\n", link.name,
               time_of(alpha.value), doubt_of(alpha), time_of(beta.value), doubt_of(beta),
               1e-9 / beta.value, link.estimate->samples(), link.where);
  }
}

void save(const ProbedLinks& found, const std::string& path) {
  if (path.empty()) return;
  if (pith_tools::write_file(path, found.table.save())) return;
  throw std::runtime_error(path + " cannot be written");
}

void measure(pithComm_t comm, const LinkOptions& options) {
  int rank = 0;
  int ranks = 0;
  if (pithCommUserRank(comm, &rank) != pithSuccess) throw failure("pithCommUserRank");
  if (pithCommCount(comm, &ranks) != pithSuccess) throw failure("pithCommCount");
  if (ranks < 2) {
    throw std::runtime_error("one rank has no links: expected --ranks N, or a launcher's ranks");
  }
  ProbedLinks found;
  probe_links(comm, found);
  if (rank != 0) return;
  print(found);
  save(found, options.save);
}

// `join` makes the communicator. After an error the others hear of it by the abort.
template <class Join>
int run_rank(const LinkOptions& options, const Join& join) {
  pithComm_t comm = nullptr;
  try {
    if (join(&comm) != pithSuccess) throw failure("joining the ranks");
    measure(comm, options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "pith-info: {}\n", error.what());
    if (comm != nullptr) pithCommAbort(comm);
    return 1;
  }
  return pithCommDestroy(comm) == pithSuccess ? 0 : 1;
}

// Rank 0 makes the id, for whose sake it has to stay, and passes it on. An id is written at once.
pithResult_t join_local(pithComm_t* comm, int rank, int ranks, const int (&ends)[2]) {
  pithUniqueId id = {};
  if (rank == 0) {
    const pithResult_t made = pithGetUniqueId(&id);
    if (made != pithSuccess) return made;
    for (int other = 1; other < ranks; ++other) {
      if (write(ends[1], &id, sizeof(id)) != sizeof(id)) return pithSystemError;
    }
  } else if (read(ends[0], &id, sizeof(id)) != sizeof(id)) {
    return pithSystemError;
  }
  return pithCommInitRank(comm, ranks, id, rank);
}

[[noreturn]] void become_rank(const LinkOptions& options, int rank, pid_t parent,
                              const int (&ends)[2]) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  const int status = run_rank(
      options, [&](pithComm_t* comm) { return join_local(comm, rank, options.ranks, ends); });
  std::fflush(nullptr);
  _exit(status);
}

// 0 if all end with 0; the first that does not ends the others.
int wait_for(const std::vector<pid_t>& children) {
  int result = 0;
  for (std::size_t left = children.size(); left > 0;) {
    int status = 0;
    if (waitpid(-1, &status, 0) < 0) {
      if (errno == EINTR) continue;
      break;
    }
    --left;
    if (status == 0 || result != 0) continue;
    result = 1;
    for (const pid_t child : children) kill(child, SIGKILL);
  }
  return result;
}

int start_ranks(const LinkOptions& options) {
  int ends[2];
  if (pipe(ends) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  const pid_t parent = getpid();
  std::fflush(nullptr);
  std::vector<pid_t> children;
  for (int rank = 0; rank < options.ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) become_rank(options, rank, parent, ends);
    if (child < 0) {
      for (const pid_t other : children) kill(other, SIGKILL);
      throw std::system_error(errno, std::generic_category(), "fork");
    }
    children.push_back(child);
  }
  return wait_for(children);
}

}  // namespace

int show_links(const LinkOptions& options) {
  for (const auto& [name, value] : probe_variables) setenv(name, value, 1);
  if (options.ranks == 0)
    return run_rank(options, [](pithComm_t* comm) { return pithCommInitEnv(comm); });
  try {
    return start_ranks(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "pith-info: {}\n", error.what());
    return 1;
  }
}

}  // namespace pith_info
