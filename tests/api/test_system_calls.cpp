// In steady state a call over shared memory makes no system call but to wait.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>

#include "catch.hpp"
#include "ranks.hpp"

using namespace ranks;

namespace {

constexpr std::array<std::size_t, 3> sizes = {8, 64 << 10, 1 << 20};

void pin(int rank) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(static_cast<unsigned>(rank) % static_cast<unsigned>(sysconf(_SC_NPROCESSORS_ONLN)),
          &cores);
  sched_setaffinity(0, sizeof cores, &cores);
}

// From here on this thread may only wait; anything else raises SIGSYS.
bool forbid_system_calls() {
  constexpr auto allow = [](long number) -> std::array<sock_filter, 2> {
    return {sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(number), 0, 1),
            sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  };
  std::vector<sock_filter> program;
  program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
  constexpr std::array waiting = {
#ifdef SYS_poll
      SYS_poll,  SYS_epoll_wait,
#endif
      SYS_ppoll, SYS_epoll_pwait, SYS_sched_yield,  SYS_futex,
      SYS_read,  SYS_write,       SYS_rt_sigreturn, SYS_exit_group};
  for (const long number : waiting) {
    for (const sock_filter& step : allow(number)) program.push_back(step);
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP));
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

constexpr int not_possible = 77;
constexpr int calls_base = 80;  // exit status: this plus the number of the system call

[[noreturn]] void report(int, siginfo_t* info, void*) {
  _exit(calls_base + info->si_syscall % 170);
}

// One of three ranks waits for another that comes late, while the root of the next broadcast runs
// ahead of both: of its pieces those beyond what slots may keep need buffers.
void hold_up(int rank, int waits, int comes_late, const Buffer& send, const Buffer& recv,
             pithComm_t comm) {
  if (rank == comes_late) {
    sleep_s(0.001);
    ok(pithSend(send.data(), 1, pithFloat32, waits, comm, nullptr));
  } else if (rank == waits) {
    ok(pithRecv(recv.data(), 1, pithFloat32, comes_late, comm, nullptr));
  }
}

// Of every length, the collectives that over views need nothing but to wait. The barrier bounds how
// far a broadcast's root runs ahead. `late`: each rank in turn comes so late that its peers do run
// ahead as far as they can, and what that takes is there from then on.
void repeat(Rank& self, pithComm_t comm, const Buffer& send, const Buffer& recv, int calls,
            bool late) {
  for (const std::size_t bytes : sizes) {
    const std::size_t count = bytes / 4;
    const std::size_t block = count / static_cast<std::size_t>(self.size);
    for (int i = 0; i < calls; ++i) {
      if (late && i % 10 == self.rank) sleep_s(0.001);
      const int root = i % self.size;
      for (int k = 0; k < 4; ++k) {
        ok(pithAllReduce(send.data(), recv.data(), count, pithFloat32, pithSum, comm, nullptr));
      }
      if (late && self.size == 3 && i % 10 < 3) {
        const int step = 1 + i / 10 % 2;
        hold_up(self.rank, (root + step) % 3, (root + 2 * step) % 3, send, recv, comm);
      }
      ok(pithBroadcast(send.data(), recv.data(), count, pithFloat32, root, comm, nullptr));
      ok(pithAllGather(send.data(), recv.data(), block, pithFloat32, comm, nullptr));
      ok(pithBarrier(comm, nullptr));
    }
  }
}

// Ends the process itself, for it may do nothing else any more.
void only_waits(Rank& self, bool registered) {
  pin(self.rank);
  pithComm_t comm = self.join();
  struct sigaction action = {};
  action.sa_flags = SA_SIGINFO;
  action.sa_sigaction = report;
  sigaction(SIGSYS, &action, nullptr);
  const Buffer send(sizes.back(), registered);
  const Buffer recv(sizes.back(), registered);
  repeat(self, comm, send, recv, 100, true);
  self.meet();
  if (!forbid_system_calls()) _exit(not_possible);
  self.meet();
  repeat(self, comm, send, recv, 50, false);
  self.meet();
  _exit(0);
}

}  // namespace

// Threads of a process reach all of its memory, processes what pithMemAlloc gave. The first calls
// by a rival allocate what its later ones use, so none is tried.
TEST_CASE("no system call but waiting over views", "[steady]") {
  for (Setup setup : every_link()) {
    if (setup.transport == "tcp" || setup.transport == "ucx") continue;  // no views
    setup.environment.emplace_back("PITH_LEARN", "0");
    for (const bool registered : {true, false}) {
      if (!registered && setup.way != Way::all) continue;
      for (const int size : {2, 3}) {
        INFO(name_of(setup) << ", " << size << (registered ? " ranks, registered" : " ranks"));
        const auto body = [registered](Rank& self) { only_waits(self, registered); };
        // A pool may meet its largest size after the warm-up all the same.
        std::string outcome = run(size, setup, body);
        for (int again = 0; again < 3 && outcome != ""; ++again) outcome = run(size, setup, body);
        if (outcome.find("exit status 77") != std::string::npos) {
          WARN("skipped: this system allows no seccomp filter");
          continue;
        }
        CHECK(outcome == "");
      }
    }
  }
}
