#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>

#include "catch.hpp"
#include "deny_copies.hpp"
#include "transport/shm_rank.hpp"

namespace {

using namespace pith_test;
using pith::ShmTransport;

std::size_t entries(const char* folder) {
  std::size_t count = 0;
  DIR* directory = opendir(folder);
  while (directory && readdir(directory)) ++count;
  if (directory) closedir(directory);
  return count;
}

// The same field of the peer's handle.
std::uint64_t swap_where(ShmRank& self, std::uint32_t call, std::uint64_t where) {
  std::vector<std::byte> text(sizeof where);
  std::memcpy(text.data(), &where, text.size());
  self.send(1 - self.rank(), call, text);
  ReceiveOp& got = self.receive(1 - self.rank(), call, text.size());
  self.wait(got);
  std::uint64_t theirs = 0;
  std::memcpy(&theirs, got.data.data(), sizeof theirs);
  return theirs;
}

// So many bytes of registered memory on both ranks, all of it there and seen by the other.
void share(ShmRank& self, Heap& heap, std::size_t bytes) {
  const int peer = 1 - self.rank();
  auto* mine = static_cast<std::byte*>(heap.allocate(bytes));
  must(mine, "no heap");
  mine[bytes - 1] = static_cast<std::byte>(self.rank() + 1);
  MemoryHandle handle = self.shm.expose(peer, {mine, bytes});
  must(handle.reach == MemoryHandle::Reach::load_store, "not exposed");
  handle.where = swap_where(self, 20, handle.where);
  const std::byte* view = self.shm.map(peer, handle);
  must(view && view[bytes - 1] == static_cast<std::byte>(peer + 1), "wrong contents");
}

// Gives this process a /dev/shm of 64 MB, as containers have it. Why it cannot, or nothing.
std::string take_small_dev_shm() {
  const auto refused = [](const std::string& what) {
    return what + " is refused here: " + std::strerror(errno);
  };
  if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
    return refused("a mount namespace");
  }
  // Nobody else sees what is mounted here.
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    return refused("a private mount");
  }
  if (mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=64m") != 0) return refused("mounting /dev/shm");
  return {};
}

std::uint64_t used_of_dev_shm() {
  struct statvfs status = {};
  must(statvfs("/dev/shm", &status) == 0, "statvfs of /dev/shm");
  must(status.f_blocks * status.f_frsize == std::uint64_t{64} << 20, "not a /dev/shm of 64 MB");
  return (status.f_blocks - status.f_bfree) * status.f_frsize;
}

// Of all shared memory on this machine.
std::int64_t shared_bytes() {
  std::ifstream lines("/proc/meminfo");
  for (std::string word; lines >> word;) {
    std::int64_t kilobytes = 0;
    if (word == "Shmem:" && lines >> kilobytes) return kilobytes * 1024;
  }
  throw std::runtime_error("/proc/meminfo has no Shmem");
}

}  // namespace

TEST_CASE("shm: two threads, every path", "[shm]") {
  const auto body = [](int rank, const Names& names) {
    ShmRank self(rank, names, tiny_options());
    must(self.attached, "not attached");
    check_all(self, 300000);
    leave(self);
  };
  CHECK(run_threads(body) == "");
}

TEST_CASE("shm: two processes, every path, and nothing is left", "[shm][alone]") {
  const std::size_t files = entries("/dev/shm");
  const std::size_t descriptors = entries("/proc/self/fd");
  Heap heap(std::size_t{256} << 20);
  for (const bool tiny : {true, false}) {
    const auto body = [tiny, &heap](int rank, const Names& names) {
      ShmOptions options = tiny ? tiny_options() : ShmOptions();
      options.heap = &heap;
      ShmRank self(rank, names, options);
      must(self.attached, "not attached");
      check_all(self, std::size_t{8} << 20);
      leave(self);
    };
    CHECK(run_forked(body) == "");
  }
  CHECK(entries("/dev/shm") == files);
  CHECK(entries("/proc/self/fd") == descriptors + 1);
}

TEST_CASE("shm: registered memory of a peer is read and written in place", "[shm]") {
  const auto body = [](int rank, const Names& names) {
    ShmRank self(rank, names, ShmOptions());
    const int peer = 1 - rank;
    Heap& heap = Heap::process();
    auto* mine = static_cast<std::byte*>(heap.allocate(100000));
    must(mine, "no heap");
    std::memset(mine, rank + 1, 100000);
    const MemoryHandle handle = self.shm.expose(peer, {mine, 100000});
    must(handle.reach == MemoryHandle::Reach::load_store, "not exposed");
    const MemoryHandle theirs{swap_where(self, 1, handle.where), MemoryHandle::Reach::load_store};
    std::byte* view = self.shm.map(peer, theirs);
    must(view && view[99999] == static_cast<std::byte>(peer + 1), "wrong contents");
    self.meet(peer, 2);
    view[5] = std::byte{77};
    self.meet(peer, 3);
    must(mine[5] == std::byte{77}, "the peer's store has not come");
    std::byte local{};
    must(self.shm.expose(peer, {&local, 1}).reach == MemoryHandle::Reach::none, "private memory");
    leave(self);
  };
  CHECK(run_forked(body) == "");
}

TEST_CASE("shm: private memory of a peer is copied from and to", "[shm]") {
  const auto body = [](int rank, const Names& names) {
    ShmOptions options;
    options.copy_bytes = 1000;
    ShmRank self(rank, names, options);
    const int peer = 1 - rank;
    std::vector<std::byte> mine(5000, static_cast<std::byte>(rank + 1));
    self.meet(peer, 10);  // the peer has found out whom it reaches
    const MemoryHandle handle = self.shm.expose(peer, {mine.data(), mine.size()});
    must(handle.reach == MemoryHandle::Reach::copy, "not exposed");
    must(self.shm.expose(peer, {mine.data(), 999}).reach == MemoryHandle::Reach::none,
         "below the limit");
    const std::uint64_t theirs = swap_where(self, 1, handle.where);
    std::vector<std::byte> copy(4000);
    must(!self.shm.copy_from(peer, theirs + 1000, {copy.data(), copy.size()}), "no copy");
    must(copy == std::vector<std::byte>(4000, static_cast<std::byte>(peer + 1)), "wrong contents");
    self.meet(peer, 2);
    const std::byte mark{77};
    must(!self.shm.copy_to(peer, theirs + 5, {const_cast<std::byte*>(&mark), 1}), "no copy back");
    self.meet(peer, 3);
    must(mine[5] == mark, "the peer's copy has not come");
    const Error error = self.shm.copy_from(peer, 8, {copy.data(), copy.size()});
    must(error.code() == Code::remote && error.rank() == peer, "what is not there was copied");
    leave(self);
  };
  CHECK(run_forked(body) == "");
}

TEST_CASE("shm: private memory of any size is copied where a call asks for it", "[shm]") {
  const auto body = [](int rank, const Names& names) {
    ShmOptions options;
    options.copy_bytes = 0;
    options.copies = true;
    ShmRank self(rank, names, options);
    const int peer = 1 - rank;
    std::vector<std::byte> mine(100, static_cast<std::byte>(rank + 1));
    self.meet(peer, 10);
    const Bytes memory{mine.data(), mine.size()};
    must(self.shm.expose(peer, memory).reach == MemoryHandle::Reach::none, "nobody asked");
    const MemoryHandle handle = self.shm.expose_for_copies(peer, memory);
    must(handle.reach == MemoryHandle::Reach::copy, "not exposed");
    const std::uint64_t theirs = swap_where(self, 1, handle.where);
    std::byte copy{0};
    must(!self.shm.copy_from(peer, theirs + 99, {&copy, 1}), "no copy");
    must(copy == static_cast<std::byte>(peer + 1), "wrong contents");
    leave(self);
  };
  CHECK(run_forked(body) == "");
}

TEST_CASE("shm: nothing is preferred for a peer that is not attached", "[shm]") {
  pith::Scheduler scheduler;
  pith::Mailbox mailbox(scheduler, 2);
  pith::ShmTransport alone(scheduler, mailbox, 0, 2, {});
  CHECK_FALSE(alone.prefers_messages(1));
}

TEST_CASE("shm: messages are preferred as long as nothing is known", "[shm]") {
  const auto body = [](int rank, const Names& names) {
    ShmRank self(rank, names, {});
    const int peer = 1 - rank;
    self.meet(peer, 10);
    must(self.shm.prefers_messages(peer), "nothing is known yet");
    leave(self);
  };
  CHECK(run_forked(body) == "");
}

TEST_CASE("shm: no copies where they are switched off", "[shm]") {
  const auto body = [](int rank, const Names& names) {
    ShmOptions options;
    options.copy_bytes = rank == 0 ? 0 : 1;
    ShmRank self(rank, names, options);
    std::vector<std::byte> mine(std::size_t{1} << 20);
    self.meet(1 - rank, 10);
    // Rank 0 neither copies nor exposes.
    const bool reached = self.shm.expose_for_copies(1 - rank, {mine.data(), mine.size()}).reach !=
                         MemoryHandle::Reach::none;
    must(!reached, "exposed");
    leave(self);
  };
  CHECK(run_forked(body) == "");
}

TEST_CASE("shm: where copies are refused, private memory goes through rings", "[shm]") {
  const auto no_filter = [] { return deny_copies() ? std::string() : std::strerror(errno); };
  const std::string refusal = told_by_child(no_filter);
  if (!refusal.empty()) {
    WARN("skipped: a seccomp filter is refused here: " << refusal);
    return;
  }
  for (const bool to_both : {false, true}) {
    const auto body = [to_both](int rank, const Names& names) {
      if (rank == 1 || to_both) must(deny_copies(), "no filter");
      ShmRank self(rank, names, ShmOptions());
      must(self.attached, "not attached");
      std::vector<std::byte> mine(std::size_t{1} << 20);
      self.meet(1 - rank, 10);
      // Rank 0 may reach into a rank 1 that may not do so itself.
      const MemoryHandle handle = self.shm.expose(1 - rank, {mine.data(), mine.size()});
      const bool reached = handle.reach != MemoryHandle::Reach::none;
      must(!reached || (rank == 1 && !to_both), "exposed to one who cannot copy");
      check_all(self, std::size_t{8} << 20);
      leave(self);
    };
    CHECK(told_by_child([&body] { return run_forked(body); }) == "");
  }
}

TEST_CASE("shm: a /dev/shm of 64 MB is no limit", "[shm]") {
  const std::string refusal = told_by_child(take_small_dev_shm);
  if (!refusal.empty()) {
    WARN("skipped: " << refusal);
    return;
  }
  const auto body = [](int rank, const Names& names) {
    Heap heap(std::size_t{256} << 20);
    ShmOptions options;
    options.heap = &heap;
    ShmRank self(rank, names, options);
    must(self.attached, "not attached");
    share(self, heap, std::size_t{96} << 20);
    check_all(self, std::size_t{8} << 20);
    must(used_of_dev_shm() == 0, "something lies in /dev/shm");
    leave(self);
  };
  CHECK(told_by_child([&body] {
          const std::string failure = take_small_dev_shm();
          return failure.empty() ? run_forked(body) : failure;
        }) == "");
}

TEST_CASE("shm: a killed peer is noticed, and what it sent before still arrives", "[shm]") {
  const auto body = [](int rank, const Names& names) {
    ShmRank self(rank, names, tiny_options());
    must(self.attached, "not attached");
    const int peer = 1 - rank;
    if (rank == 1) {
      self.send(peer, 1, pattern(2000, 1));
      self.meet(peer, 2);
      kill(getpid(), SIGKILL);
    }
    self.meet(peer, 2);
    SendOp& pending = self.send(peer, 3, pattern(1000000, 1));
    ReceiveOp& got = self.receive(peer, 1, 2000);
    self.wait(got);
    must(same(got.data, pattern(2000, 1)), "contents differ");
    // Half of the time by the descriptor alone, as a sleeping engine would see it.
    must(self.shm.arm() || !self.lost, "nothing to wait for");
    pollfd polled = {self.shm.descriptor(), POLLIN, 0};
    must(poll(&polled, 1, 20000) == 1, "the descriptor is silent");
    self.shm.disarm();
    self.until([&] { return pending.remaining == 0; }, "pending send");
    must(static_cast<bool>(pending.send.error), "sent to the dead");
    SendOp& later = self.send(peer, 4, pattern(10, 1));
    must(later.remaining == 0 && later.send.error, "a later send ends well, or waits for ever");
    must(!self.lost, "lost though nothing waits for it");
    self.receive(peer, 5, 10);
    self.until([&] { return static_cast<bool>(self.lost); }, "loss");
    must(self.lost.rank() == 1 && self.lost.code() == Code::remote, self.lost.message());
    must(std::string(self.lost.message()) == "rank 1 is lost: its process has ended",
         self.lost.message());
  };
  CHECK(run_forked_to_die(body) == "");
}

TEST_CASE("shm: nothing is left of ranks that are all killed", "[shm][alone]") {
  constexpr std::size_t bytes = std::size_t{128} << 20;
  constexpr std::int64_t slack = std::int64_t{16} << 20;
  const std::size_t files = entries("/dev/shm");
  const std::int64_t before = shared_bytes();
  const pid_t parent = getpid();
  std::array<int, 2> ready{};
  REQUIRE(pipe(ready.data()) == 0);
  std::array<pid_t, 2> children{};
  {
    Names names;
    for (const int rank : {0, 1}) {
      children[static_cast<std::size_t>(rank)] = fork();
      if (children[static_cast<std::size_t>(rank)] != 0) continue;
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      close(ready[0]);
      const std::string failure = guarded([&] {
        Heap heap(2 * bytes);
        ShmOptions options;
        options.heap = &heap;
        ShmRank self(rank, names, options);
        must(self.attached, "not attached");
        share(self, heap, bytes);
        check_sizes(self, {1, 10000, 1000000});
        must(write(ready[1], "", 1) == 1, "write");
        for (;;) self.meet(1 - rank, 30);
      });
      std::fprintf(stderr, "rank %d: %s\n", rank, failure.c_str());
      _exit(1);
    }
  }
  close(ready[1]);
  char byte = 0;
  const bool first = read(ready[0], &byte, 1) == 1;
  const bool second = read(ready[0], &byte, 1) == 1;
  CHECK((first && second));
  CHECK(shared_bytes() > before + 2 * std::int64_t{bytes} - slack);
  for (const pid_t child : children) kill(child, SIGKILL);
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(WIFSIGNALED(status));
  }
  close(ready[0]);
  CHECK(entries("/dev/shm") == files);
  // What others on this machine hold may come and go.
  const std::uint64_t limit = monotonic_ns() + 20 * second_ns;
  while (shared_bytes() > before + slack && monotonic_ns() < limit) poll(nullptr, 0, 10);
  CHECK(shared_bytes() <= before + slack);
}

TEST_CASE("shm: leaving in order is no loss", "[shm]") {
  const auto body = [](int rank, const Names& names) {
    ShmRank self(rank, names, tiny_options());
    self.meet(1 - rank, 1);
    if (rank == 1) return self.shm.close(0);
    pollfd polled = {self.shm.descriptor(), POLLIN, 0};
    must(poll(&polled, 1, 20000) == 1, "the goodbye has not come");
    self.shm.disarm();
    must(!self.lost, "a goodbye was taken for a loss");
    SendOp& late = self.send(1, 4, pattern(1000000, 1));
    self.until([&] { return late.remaining == 0; }, "a send to one who has left");
    must(static_cast<bool>(late.send.error), "sent to one who has left");
  };
  CHECK(run_forked(body) == "");
}

TEST_CASE("shm: strangers, other shapes and unknown names are not attached", "[shm]") {
  const auto strangers = [](int rank, const Names& names) {
    const auto byte = static_cast<std::byte>(rank);
    ShmRank self(rank, names, tiny_options(), byte, second_ns / 2);
    must(!self.attached, "attached a stranger");
  };
  CHECK(run_threads(strangers) == "");
  const auto shapes = [](int rank, const Names& names) {
    const ShmOptions options = rank == 0 ? tiny_options() : ShmOptions();
    ShmRank self(rank, names, options, std::byte{}, second_ns / 2);
    must(!self.attached, "attached another shape");
  };
  CHECK(run_threads(shapes) == "");
  Rank alone(0, 2);
  ShmTransport shm(alone.scheduler, alone.mailbox, 0, 2, {});
  REQUIRE(shm.listen());
  std::vector<bool> reached;
  const std::vector<std::string> all = {"", "pith-nobody-listens-here"};
  CHECK(!shm.attach(all, reached, monotonic_ns() + second_ns));
  CHECK(!reached[1]);
}
