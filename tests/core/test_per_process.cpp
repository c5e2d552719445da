#include "core/per_process.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <barrier>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "tests/catch.hpp"

namespace pith::test {

namespace {

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

pid_t forked() {
  std::fflush(nullptr);
  return fork();
}

// The child's status; -1: it had to be killed.
int await(pid_t child) {
  int status = 0;
  for (int waited = 0; waited < 10000; ++waited) {
    if (waitpid(child, &status, WNOHANG) == child) {
      return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    sleep_ms(1);
  }
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  return -1;
}

struct Plain {};

struct Slow {
  Slow() { sleep_ms(200); }
};

struct Stopping {
  void stop() { stopped = true; }
  bool stopped = false;
};

// Made before what it uses, so destroyed after it.
struct Late {
  ~Late() {
    if (user) _exit(user->stopped ? 7 : 8);
  }
  Stopping* user = nullptr;
};

}  // namespace

TEST_CASE("one of a process is the same for all its threads", "[process]") {
  std::array<Slow*, 4> found{};
  std::array<std::thread, 4> threads;
  for (std::size_t i = 0; i < threads.size(); ++i) {
    threads[i] = std::thread([&found, i] { found[i] = &PerProcess<Slow>::get(); });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(found == std::array<Slow*, 4>{found[0], found[0], found[0], found[0]});
}

#if !defined(__SANITIZE_THREAD__)

TEST_CASE("a forked child has one of its own, the same for all its threads", "[process]") {
  const Plain* parents = &PerProcess<Plain>::get();
  for (int round = 0; round < 100; ++round) {
    const pid_t child = forked();
    if (child == 0) {
      std::array<Plain*, 2> found{};
      std::barrier both(2);
      const auto look = [&](std::size_t i) {
        both.arrive_and_wait();
        found[i] = &PerProcess<Plain>::get();
      };
      std::thread other([&] { look(1); });
      look(0);
      other.join();
      _exit(found[0] == found[1] && found[0] != parents ? 0 : 1);
    }
    REQUIRE(await(child) == 0);
  }
  CHECK(parents == &PerProcess<Plain>::get());
}

TEST_CASE("a fork while another thread makes one", "[process]") {
  struct Slower : Slow {};
  std::thread maker([] { PerProcess<Slower>::get(); });
  sleep_ms(50);
  const pid_t child = forked();
  if (child == 0) {
    PerProcess<Slower>::get();
    _exit(3);
  }
  CHECK(await(child) == 3);
  maker.join();
}

TEST_CASE("what was made earlier finds it stopped, but there", "[process]") {
  const pid_t child = forked();
  if (child == 0) {
    static Late late;
    late.user = &PerProcess<Stopping>::get();
    std::exit(late.user->stopped ? 1 : 2);
  }
  CHECK(await(child) == 7);
}

TEST_CASE("a forked child does not stop what is its parent's", "[process]") {
  struct Loud {
    void stop() const { _exit(9); }
  };
  const pid_t child = forked();
  if (child == 0) {
    PerProcess<Loud>::get();
    const pid_t grandchild = forked();
    if (grandchild == 0) std::exit(4);
    if (await(grandchild) != 4) _exit(1);
    std::exit(5);
  }
  CHECK(await(child) == 9);
}

#endif

}  // namespace pith::test
