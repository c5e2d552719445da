// Two ranks as threads or as processes, that swap their addresses over a socket pair.
#pragma once

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>
#include <thread>

#include "ring_support.hpp"

namespace pith_test {

inline constexpr std::uint64_t second_ns = 1'000'000'000;

// The bootstrap of these tests: a datagram socket pair that carries the names.
struct Names {
  std::array<int, 2> ends{};
  Names() { must(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends.data()) == 0, "socketpair"); }
  ~Names() {
    for (const int end : ends) close(end);
  }
  std::string swap(int rank, const std::string& mine) const {
    const int end = ends[static_cast<std::size_t>(rank)];
    std::array<char, 4096> theirs{};
    must(write(end, mine.data(), mine.size()) > 0, "write of the name");
    const ssize_t length = read(end, theirs.data(), theirs.size());
    must(length > 0, "read of the name");
    return {theirs.data(), static_cast<std::size_t>(length)};
  }
};

template <class Body>
std::string guarded(Body body) {
  try {
    body();
  } catch (const std::exception& failure) {
    return failure.what();
  }
  return {};
}

// body(rank) in this process as rank 0 and in a forked one as rank 1.
template <class Body>
std::string run_forked(Body body) {
  std::fflush(nullptr);
  Names names;
  const pid_t child = fork();
  if (child == 0) {
    const std::string failure = guarded([&] { body(1, names); });
    if (!failure.empty()) std::fprintf(stderr, "rank 1: %s\n", failure.c_str());
    _exit(failure.empty() ? 0 : 1);
  }
  std::string failure = guarded([&] { body(0, names); });
  int status = 0;
  if (!failure.empty()) kill(child, SIGKILL);
  waitpid(child, &status, 0);
  if (!failure.empty()) return failure;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? "" : "rank 1 failed";
}

// The same, where rank 1 kills itself.
template <class Body>
std::string run_forked_to_die(Body body) {
  std::fflush(nullptr);
  Names names;
  const pid_t child = fork();
  if (child == 0) {
    guarded([&] { body(1, names); });
    _exit(1);
  }
  std::string failure = guarded([&] { body(0, names); });
  int status = 0;
  if (!failure.empty()) kill(child, SIGKILL);
  waitpid(child, &status, 0);
  if (!failure.empty()) return failure;
  return WIFSIGNALED(status) ? "" : "rank 1 was not killed";
}

// What body() says in a forked process, which may give up what this one keeps.
template <class Body>
std::string told_by_child(Body body) {
  std::fflush(nullptr);
  std::array<int, 2> ends{};
  must(pipe(ends.data()) == 0, "pipe");
  const pid_t child = fork();
  if (child == 0) {
    std::string words;
    const std::string failure = guarded([&] { words = body(); });
    const std::string& told = failure.empty() ? words : failure;
    const bool written = write(ends[1], told.data(), told.size()) >= 0;
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  std::string told;
  std::array<char, 1024> part{};
  for (ssize_t got = 0; (got = read(ends[0], part.data(), part.size())) > 0;) {
    told.append(part.data(), static_cast<std::size_t>(got));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? told : "the child did not end well";
}

template <class Body>
std::string run_threads(Body body) {
  Names names;
  std::string other;
  std::thread thread([&] { other = guarded([&] { body(1, names); }); });
  const std::string failure = guarded([&] { body(0, names); });
  thread.join();
  if (!failure.empty() && !other.empty()) return failure + "; rank 1: " + other;
  return failure.empty() ? other : failure;
}

}  // namespace pith_test
