// Nothing stays behind: what a run leaves in the system is found by every test of this folder, and
// what a process keeps of communicators that have ended, here.
#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "catch.hpp"
#include "ranks.hpp"

using namespace ranks;

TEST_CASE("a run tells what it has left behind", "[left-over]") {
  const std::string name = "/left-over-of-" + std::to_string(getpid());
  CHECK(run(1, {}, [](Rank&) {}) == "");

  std::string text = run(1, {}, [&](Rank&) {
    ensure(shm_open(name.c_str(), O_CREAT | O_RDWR, 0600) >= 0, "no shared memory here");
  });
  shm_unlink(name.c_str());
  CHECK(text == "/dev/shm" + name + " is left over\n");

  const std::string ucx_name = "/ucx_shm_posix_of-" + std::to_string(getpid());
  const Body look_as_ucx_does = [&](Rank&) {
    ensure(shm_open(ucx_name.c_str(), O_CREAT | O_RDWR, 0600) >= 0, "no shared memory here");
  };
  Setup impatient;
  impatient.limit_s = 1;
  text = run(1, impatient, look_as_ucx_does);
  shm_unlink(ucx_name.c_str());
  CHECK(text == "/dev/shm" + ucx_name + " is left over\n");
  Setup killed;
  killed.may_be_killed = true;
  CHECK(run(1, killed, look_as_ucx_does) == "");
  CHECK(shm_unlink(ucx_name.c_str()) != 0);  // it has been removed

  int* segment = static_cast<int*>(
      mmap(nullptr, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const Body make_a_segment = [&](Rank&) { *segment = shmget(IPC_PRIVATE, 4096, 0600); };
  text = run(1, {}, make_a_segment);
  shmctl(*segment, IPC_RMID, nullptr);
  CHECK(text == "the System V segment " + std::to_string(*segment) + " is left over\n");
  CHECK(run(1, killed, make_a_segment) == "");
  munmap(segment, sizeof(int));

  text = run(1, {}, [](Rank&) {
    if (fork() == 0) {
      sleep(60);
      _exit(0);
    }
  });
  CHECK_THAT(text, ContainsSubstring(" still runs\n"));
  CHECK(run(1, {}, [](Rank&) {}) == "");
}

// A name that is there for a moment stays if its process is killed then.
TEST_CASE("a start makes no names in /dev/shm, not even for a moment", "[left-over]") {
  for (const Setup& setup : between_processes()) {
    INFO(name_of(setup));
    CHECK(run(2, setup, [](Rank& self) {
            const int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
            if (inotify_add_watch(watch, "/dev/shm", IN_CREATE) < 0) return;  // none here
            {
              const Comm comm(self.join());
              ok(pithBarrier(comm, nullptr));
            }
            alignas(inotify_event) std::array<char, 4096> events{};
            const ssize_t got = read(watch, events.data(), events.size());
            close(watch);
            for (ssize_t at = 0; at < got;) {
              const auto* event = reinterpret_cast<const inotify_event*>(events.data() + at);
              const std::string name = event->name;
              // Others may make what they like.
              ensure(name.find("pith") == std::string::npos, name);
              at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
            }
          }) == "");
  }
}

namespace {

std::size_t descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

// Of the first `size` ranks. It ends in order, or its last rank dies and the others shrink it.
void make_and_end(Rank& self, int which, int size, bool dies) {
  pithComm_t comm = nullptr;
  ok(pithCommInitRank(&comm, size, self.id(which), self.rank));
  const pithResult_t first = pithBarrier(comm, nullptr);
  if (!dies) {
    ok(first);
  } else {
    if (self.rank == size - 1) self.die();
    while (pithBarrier(comm, nullptr) == pithSuccess) continue;
    pithComm_t next = nullptr;
    ok(pithCommShrink(comm, nullptr, 0, &next, nullptr, PITH_SHRINK_DEFAULT));
    ok(pithBarrier(next, nullptr));
    ok(pithCommDestroy(next));
  }
  ok(pithCommDestroy(comm));
}

}  // namespace

TEST_CASE("a process keeps no descriptor of a communicator that failed", "[left-over]") {
  for (const Setup& setup : between_processes()) {
    INFO(name_of(setup));
    CHECK(run(4, setup, [](Rank& self) {
            // The first one leaves what the process makes once: threads with their descriptors.
            make_and_end(self, 0, 4, false);
            const std::size_t usual = descriptors();
            std::size_t now = 0;
            const auto as_usual = [&] { return (now = descriptors()) <= usual; };
            make_and_end(self, 1, 4, true);
            make_and_end(self, 2, 3, true);
            try {
              wait_until(as_usual, 2);
            } catch (const std::exception&) {
              ensure(false, std::to_string(now) + " descriptors, before " + std::to_string(usual));
            }
          }) == "");
  }
}
