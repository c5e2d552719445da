// Messages that verbs hands over where they lie, before the mailbox sees them.
#include <cstring>

#include "catch.hpp"
#include "tests/transport/verbs_rank.hpp"
#include "transport/verbs/verbs_frames.hpp"

namespace {

using namespace pith_test;
using pith::Front;
using pith::FrontReader;
using pith::Header;

Header header_of(const VerbsRank& self, std::uint32_t call, std::size_t bytes) {
  Header header;
  header.comm = self.comm.id;
  header.call = call;
  header.length = static_cast<std::uint32_t>(bytes);
  return header;
}

Front look(VerbsRank& self, const Header& header, std::vector<std::byte>& read) {
  const FrontReader reader{[](void* context, const std::byte* payload) {
                             auto& into = *static_cast<std::vector<std::byte>*>(context);
                             if (!into.empty()) std::memcpy(into.data(), payload, into.size());
                           },
                           &read};
  return self.verbs->take_front(1 - self.rank(), header, reader);
}

// What is at the front once something is there.
Front look_until_there(VerbsRank& self, const Header& header, std::vector<std::byte>& read) {
  const std::uint64_t deadline = monotonic_ns() + 20 * second_ns;
  Front front = Front::none;
  while (front == Front::none && monotonic_ns() < deadline) front = look(self, header, read);
  return front;
}

}  // namespace

TEST_CASE("verbs: a message at the front is taken without the mailbox, if it is the one",
          "[verbs]") {
  const CleanNetwork clean;
  const auto sizes = {std::size_t{0}, std::size_t{1}, std::size_t{200}, pith::verbs_payload_max};
  constexpr std::uint32_t turns = 40;  // more than the window of 16
  CHECK(run_threads([&](int rank, const Names& names) {
          VerbsRank self(rank, names, unwatched(16));
          std::uint32_t call = 100;
          for (const std::size_t bytes : sizes) {
            for (std::uint32_t turn = 0; turn < turns; ++turn, ++call) {
              if (rank == 0) {
                self.wait(self.send(1, call, pattern(bytes, call)));
                continue;
              }
              std::vector<std::byte> read(bytes);
              const Header header = header_of(self, call, bytes);
              Header other = header;
              ++other.digest;
              must(look_until_there(self, other, read) == Front::other, "another one is taken");
              must(look(self, header, read) == Front::taken, "it is not taken");
              must(same(read, pattern(bytes, call)), "contents differ");
            }
            // Not by a message: the mailbox would get what comes behind it.
            names.swap(rank, "next");
          }
          self.leave();
        }) == "");
}

TEST_CASE("verbs: a message behind another one, or that is written, is left to the mailbox",
          "[verbs]") {
  const CleanNetwork clean;
  constexpr std::size_t written = std::size_t{1} << 20;
  CHECK(run_threads([](int rank, const Names& names) {
          VerbsRank self(rank, names, unwatched(16));
          if (rank == 0) {
            for (std::uint32_t call = 1; call <= 3; ++call) self.send(1, call, pattern(5, call));
            self.wait(self.send(1, 4, pattern(written, 4)));
            return self.leave();
          }
          std::vector<std::byte> read(5);
          must(look_until_there(self, header_of(self, 2, 5), read) == Front::other, "out of turn");
          ReceiveOp& first = self.receive(0, 1, 5);
          ReceiveOp& second = self.receive(0, 2, 5);
          self.wait(first);
          self.wait(second);
          must(same(second.data, pattern(5, 2)), "contents differ");
          self.wait(self.receive(0, 3, 5));
          std::vector<std::byte> whole(written);
          must(look(self, header_of(self, 4, written), whole) != Front::taken, "was not here yet");
          ReceiveOp& last = self.receive(0, 4, written);
          self.wait(last);
          must(same(last.data, pattern(written, 4)), "contents differ");
          self.leave();
        }) == "");
}

TEST_CASE("verbs: who looks for a message of a peer that is gone learns of the loss", "[verbs]") {
  const CleanNetwork clean;
  CHECK(run_threads([](int rank, const Names& names) {
          VerbsRank self(rank, names, unwatched(16));
          if (rank == 1) {
            self.verbs.reset();
            names.swap(rank, "gone");
            return;
          }
          names.swap(rank, "here");
          std::vector<std::byte> read(1);
          self.receive(1, 1, 1);
          self.until(
              [&] {
                must(look(self, header_of(self, 1, 1), read) != Front::taken, "taken from nobody");
                self.verbs->look_at_links(monotonic_ns());
                return self.losses != 0;
              },
              "loss");
        }) == "");
}
