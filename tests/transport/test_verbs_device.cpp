// VerbsTransport over a device of this host; skipped where there is none. tests/rdma runs these
// cases in a virtual machine with soft-RoCE.
#include <sys/mman.h>

#include <csignal>

#include "catch.hpp"
#include "tests/transport/verbs_keys.hpp"

namespace {

using namespace pith_test;

bool absent() {
  const pith::VerbsSupport support = pith::verbs_support({}, 1);
  if (support.why_not) WARN("skipped: " << support.why_not.message());
  // Else all goes by copies.
  CHECK_FALSE(support.why_copies);
  return static_cast<bool>(support.why_not);
}

std::string walk(const VerbsOptions& options, std::size_t longest) {
  return run_forked([&](int rank, const Names& names) {
    VerbsRank self(rank, names, options, {}, pith::verbs_library());
    check_all(self, longest);
    self.leave();
  });
}

void use_mapping(VerbsRank& self, void* map, std::size_t bytes, std::uint32_t call) {
  const int peer = 1 - self.rank();
  SendOp& sent = self.send(peer, call, pattern(bytes, call));
  ReceiveOp op;
  op.receive.comm = &self.comm;
  op.receive.peer = peer;
  op.receive.tag = {self.comm.id, call, 0, 0};
  op.receive.into = static_cast<std::byte*>(map);
  op.receive.room = bytes;
  op.receive.waiter = std::noop_coroutine();
  op.receive.remaining = &op.remaining;
  if (self.mailbox.start(op.receive)) op.remaining = 0;
  self.wait(op);
  self.wait(sent);
  must(same({static_cast<std::byte*>(map), bytes}, pattern(bytes, call)), "contents differ");
}

}  // namespace

TEST_CASE("verbs device: every path", "[verbs_device]") {
  if (absent()) return;
  CHECK(walk({}, std::size_t{1} << 20) == "");
  CHECK(walk(written_from(100, {}), std::size_t{1} << 20) == "");
  VerbsOptions frames;
  frames.cache_bytes = 0;
  CHECK(walk(frames, std::size_t{1} << 18) == "");
}

TEST_CASE("verbs device: memory that is unmapped and mapped again at its place", "[verbs_device]") {
  if (absent()) return;
  constexpr std::size_t bytes = std::size_t{256} << 10;
  CHECK(run_forked([](int rank, const Names& names) {
          VerbsRank self(rank, names, {}, {}, pith::verbs_library());
          void* place = nullptr;
          for (std::uint32_t round = 0; round < 5; ++round) {
            const int fixed = place ? MAP_FIXED : 0;
            place = mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | fixed,
                         -1, 0);
            must(place != MAP_FAILED, "mmap");
            use_mapping(self, place, bytes, 100 + 2 * round);
            use_mapping(self, place, bytes, 101 + 2 * round);
            munmap(place, bytes);
          }
          self.leave();
        }) == "");
}

TEST_CASE("verbs device: a killed peer ends everything that waits for it", "[verbs_device]") {
  if (absent()) return;
  const auto body = [](int rank, const Names& names) {
    VerbsRank self(rank, names, {}, {}, pith::verbs_library());
    self.meet(1 - rank, 2);
    if (rank == 1) kill(getpid(), SIGKILL);
    SendOp& pending = self.send(1, 3, pattern(std::size_t{8} << 20, 1));
    self.receive(1, 4, 10);
    self.await_loss();
    must(self.lost.rank() == 1 && self.lost.code() == Code::remote, self.lost.message());
    must(pending.remaining == 0 && pending.send.error.rank() == 1, "sent to the dead");
  };
  CHECK(run_forked_to_die(body) == "");
}

TEST_CASE("verbs device: keys are those of one communicator, and end with it", "[verbs_device]") {
  if (absent()) return;
  CHECK(guarded([] { check_keys(pith::verbs_library()); }) == "");
}

// Many communicators in turn; the system's own count of objects is the caller's to compare.
TEST_CASE("verbs device: ten thousand pairs come and go", "[verbs_device]") {
  if (absent()) return;
  CHECK(run_forked([](int rank, const Names& names) {
          for (int round = 0; round < 10000; ++round) {
            VerbsRank self(rank, names, {}, {}, pith::verbs_library());
            self.leave();
          }
        }) == "");
}
