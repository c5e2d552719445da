// What is left of verbs' memory when a peer, a call or a communicator ends.
#include "catch.hpp"
#include "tests/sanitized.hpp"
#include "tests/transport/verbs_keys.hpp"
#include "transport/verbs/verbs_frames.hpp"

using namespace pith_test;

TEST_CASE("verbs: buffers of a lost peer are released, those in use when they are returned",
          "[verbs]") {
  const CleanNetwork clean;
  constexpr std::uint32_t count = 3;
  constexpr std::size_t bytes = 10000;
  CHECK(run_threads([](int rank, const Names& names) {
          VerbsRank self(rank, names, unwatched(16));
          if (rank == 1) {
            std::vector<SendOp*> sent;
            for (std::uint32_t i = 0; i < count; ++i) {
              sent.push_back(&self.send(0, 10 + i, pattern(bytes, i)));
            }
            for (SendOp* op : sent) self.wait(*op);
            self.meet(0, 2);
            self.verbs.reset();
            names.swap(rank, "gone");
            return;
          }
          self.meet(1, 2);
          names.swap(rank, "here");
          const std::size_t before = FakeVerbs::registered();
          self.receive(1, 99, 10);
          self.await_loss();
          must(FakeVerbs::registered() == before, "released while the mailbox reads there");
          for (std::uint32_t i = 0; i < count; ++i) {
            ReceiveOp& got = self.receive(1, 10 + i, bytes);
            self.wait(got);
            must(same(got.data, pattern(bytes, i)), "contents differ");
          }
          self.turn();
          must(FakeVerbs::registered() + 16 * pith::verbs_frame_max <= before,
               "the buffers of a lost peer stay registered");
        }) == "");
}

TEST_CASE("verbs: what the device of a peer that has stopped answers is no progress", "[verbs]") {
  const CleanNetwork clean;
  CHECK(run_threads([](int rank, const Names& names) {
          VerbsRank self(rank, names, unwatched(16));
          self.meet(1 - rank, 2);
          int moves = 0;
          if (rank == 0) {
            self.receive(1, 99, 10);
            // Probes begin after a second.
            for (const std::uint64_t end = monotonic_ns() + 3 * second_ns / 2;
                 monotonic_ns() < end;) {
              self.verbs->look_at_links(monotonic_ns());
              moves += self.verbs->progress() ? 1 : 0;
            }
          }
          names.swap(rank, "wakes");
          must(moves < 3, "answers count as progress");
          if (rank == 1) self.wait(self.send(0, 99, pattern(10, 99)));
          self.leave();
        }) == "");
}

TEST_CASE("verbs: keys are those of one communicator, and end with it or with an aborted call",
          "[verbs]") {
  const CleanNetwork clean;
  CHECK(guarded([] { check_keys(FakeVerbs::library()); }) == "");
}

// With a message each way, for which the callers' memory is registered. Ten thousand with
// PITH_TEST_FULL=1; they mostly wait for each other.
TEST_CASE("verbs: thousands of communicators come and go, and leave nothing", "[verbs]") {
  const CleanNetwork clean;
  const int usual = pith::test::sanitized ? 500 : 2000;
  const int rounds = pith::test::full ? 10000 : usual;
  constexpr std::size_t bytes = std::size_t{40} << 10;
  CHECK(run_threads([&](int rank, const Names& names) {
          for (int round = 1; round <= rounds; ++round) {
            {
              VerbsRank self(rank, names, unwatched(16));
              SendOp& sent = self.send(1 - rank, 1, std::vector<std::byte>(bytes));
              self.wait(self.receive(1 - rank, 1, bytes));
              self.wait(sent);
              self.leave();
            }
            if (round % 100 != 0) continue;
            names.swap(rank, "both have ended");
            must(FakeVerbs::objects() == 0, "objects of the device are left");
            names.swap(rank, "and were counted");
          }
        }) == "");
}
