// Ranks of one host that keep no descriptors for each other.
#include <poll.h>
#include <unistd.h>

#include <filesystem>

#include "catch.hpp"
#include "transport/shm_rank.hpp"

namespace {

using namespace pith_test;

ShmOptions far_options() {
  ShmOptions options = tiny_options();
  options.near = [](int, int, int) { return false; };
  return options;
}

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

bool is_rung(ShmRank& self, int limit_ms) {
  pollfd polled = {self.shm.descriptor(), POLLIN, 0};
  return poll(&polled, 1, limit_ms) == 1;
}

}  // namespace

TEST_CASE("shm: far ranks, every path", "[shm]") {
  const auto body = [](int rank, const Names& names) {
    Heap heap(std::size_t{64} << 20);
    const std::size_t before = open_descriptors();
    ShmOptions options = far_options();
    options.heap = &heap;
    ShmRank self(rank, names, options);
    must(self.attached, "not attached");
    constexpr std::size_t own = 4;  // memory file, doorbell, bell, epoll
    must(open_descriptors() == before + own, "a descriptor is kept for the peer");
    check_all(self, 300000);
    leave(self);
  };
  CHECK(run_forked(body) == "");
}

TEST_CASE("shm: a far rank that sleeps is woken", "[shm]") {
  const auto body = [](int rank, const Names& names) {
    ShmRank self(rank, names, far_options());
    self.meet(1 - rank, 1);
    for (std::uint32_t turn = 0; turn < 3; ++turn) {
      if (rank == 1) {
        poll(nullptr, 0, 50);  // the other sleeps by then, nearly always
        self.send(0, 10 + turn, pattern(100, turn));
        continue;
      }
      ReceiveOp& got = self.receive(1, 10 + turn, 100);
      const bool sleeps = self.shm.arm();
      must(!sleeps || is_rung(self, 20000), "not woken");
      self.shm.disarm();
      must(!sleeps || !is_rung(self, 0), "still rung");
      self.wait(got);
      must(same(got.data, pattern(100, turn)), "contents differ");
    }
    leave(self);
  };
  CHECK(run_forked(body) == "");
}

TEST_CASE("shm: a far rank that leaves is missed", "[shm]") {
  const auto body = [](int rank, const Names& names) {
    ShmRank self(rank, names, far_options());
    self.meet(1 - rank, 1);
    if (rank == 1) {
      self.send(0, 2, pattern(100, 1));
      return self.shm.close(0);
    }
    ReceiveOp& got = self.receive(1, 2, 100);
    self.wait(got);
    must(!self.lost, "lost though nothing waits for it");
    self.receive(1, 3, 100);
    self.until([&] { return static_cast<bool>(self.lost); }, "loss");
    must(self.lost.rank() == 1 && self.lost.code() == Code::remote, self.lost.message());
    SendOp& late = self.send(1, 4, pattern(1000000, 1));
    self.until([&] { return late.remaining == 0; }, "a send to one who has left");
    must(static_cast<bool>(late.send.error), "sent to one who has left");
  };
  CHECK(run_forked(body) == "");
}
