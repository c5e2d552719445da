// How a pair of verbs is lost, and what has come before that is not.
#include "catch.hpp"
#include "tests/transport/verbs_rank.hpp"

using namespace pith_test;

namespace {

// Drives a rank until it has lost its peer, from which something is awaited.
void lose(VerbsRank& self, std::string_view by) {
  self.receive(1 - self.rank(), 99, 10);
  self.await_loss();
  const std::string_view how = self.lost.message();
  must(how.find(by) != how.npos, std::string(how));
}

// What a device tells ends the pair, or does not.
void tell(const std::vector<std::pair<ibv_event_type, int>>& events, std::string_view by) {
  CHECK(run_threads([&](int rank, const Names& names) {
          VerbsRank self(rank, names, unwatched());
          self.meet(1 - rank, 1);
          if (rank == 1) {
            names.swap(rank, "told");
            if (by.empty()) return self.leave();
            self.verbs.reset();
            return;
          }
          for (const auto& [type, port] : events) FakeVerbs::tell(type, port);
          self.verbs->look_at_links(monotonic_ns());
          names.swap(rank, "told");
          by.empty() ? self.leave() : lose(self, by);
        }) == "");
}

}  // namespace

// One of two ports fails for good, while all goes well over the other.
TEST_CASE("verbs: a lane over which nothing passes loses the peer", "[verbs]") {
  const CleanNetwork clean;
  FakeVerbs::instance().devices = 2;
  FakeVerbs::instance().request_bytes = 64 << 10;
  FakeVerbs::instance().requests_a_look = 3;
  FakeVerbs::instance().gives_up_ns = 1'000'000;
  constexpr std::size_t bytes = std::size_t{1} << 20;
  CHECK(run_threads([&](int rank, const Names& names) {
          VerbsWish wish;
          wish.devices = "^none";
          VerbsRank self(rank, names, written_from(), wish);
          self.meet(1 - rank, 1);
          if (rank == 0) FakeVerbs::change([](FakeVerbs& fake) { fake.cut_device = 1; });
          SendOp* const sent = rank == 0 ? &self.send(1, 2, pattern(bytes, 2)) : nullptr;
          if (!sent) self.receive(0, 2, bytes);
          self.await_loss();
          const std::string_view how = self.lost.message();
          must(!sent || how.find("fake1:1 breaks") != how.npos, std::string(how));
          must(!sent || sent->send.error.rank() == 1, "the send has no error");
        }) == "");
}

// It answers for what it takes by a connection that has ended.
TEST_CASE("verbs: what a peer sent before it left is delivered, however late", "[verbs]") {
  const CleanNetwork clean;
  FakeVerbs::instance().gives_up_ns = 1'000'000;
  constexpr std::uint32_t count = 20;
  constexpr std::size_t bytes = 4000;
  const bool in_order = GENERATE(true, false);
  INFO((in_order ? "in order" : "as if killed"));
  CHECK(run_threads([&](int rank, const Names& names) {
          VerbsRank self(rank, names, unwatched());
          self.mailbox.backlog_limit = 3 * bytes;
          if (rank == 1) {
            std::vector<SendOp*> sent;
            for (std::uint32_t i = 0; i < count; ++i) {
              sent.push_back(&self.send(0, 10 + i, pattern(bytes, i)));
            }
            for (SendOp* op : sent) self.wait(*op);
            names.swap(rank, "sent");
            names.swap(rank, "it has come");
            if (in_order) self.verbs->close(monotonic_ns() + second_ns);
            self.verbs.reset();
            names.swap(rank, "gone");
            return;
          }
          names.swap(rank, "sent");
          // More comes than the mailbox keeps.
          for (int turn = 0; turn < 100; ++turn) self.turn();
          names.swap(rank, "it has come");
          names.swap(rank, "gone");
          for (std::uint32_t i = 0; i < count; ++i) {
            ReceiveOp& got = self.receive(1, 10 + i, bytes);
            self.wait(got);
            must(same(got.data, pattern(bytes, i)), "contents differ");
            const std::uint64_t later = monotonic_ns() + 2'000'000;
            while (monotonic_ns() < later) self.turn();
          }
          must(!in_order || self.losses == 0, "an orderly end was taken for a loss");
          lose(self, in_order ? "it has left" : "its connection has ended");
        }) == "");
}

TEST_CASE("verbs: a device that fails loses all peers, a port of another does not", "[verbs]") {
  const CleanNetwork clean;
  tell({{IBV_EVENT_PORT_ERR, 1}}, "");
  tell({{IBV_EVENT_PORT_ERR, 2}}, "");
  tell({{IBV_EVENT_DEVICE_FATAL, 1}}, "fake0:1: device failed");
  tell({{IBV_EVENT_DEVICE_FATAL, 1}, {IBV_EVENT_PORT_ERR, 1}}, "fake0:1: device failed");
}

TEST_CASE("verbs: a device that reports nothing any more loses all peers", "[verbs]") {
  const CleanNetwork clean;
  CHECK(run_threads([](int rank, const Names& names) {
          VerbsRank self(rank, names, unwatched());
          self.meet(1 - rank, 1);
          names.swap(rank, "met");
          if (rank == 0) FakeVerbs::change([](FakeVerbs& fake) { fake.polls_fail = true; });
          lose(self, "reports no completions");
        }) == "");
}
