// A rank of two over VerbsTransport, on the software network unless a library is given.
#pragma once

#include <memory>

#include "catch.hpp"
#include "tests/transport/fake_verbs.hpp"
#include "transport/ring_support.hpp"
#include "transport/two_ranks.hpp"
#include "transport/verbs/verbs.hpp"
#include "transport/verbs/verbs_rail.hpp"

namespace pith_test {

using pith::Expected;
using pith::VerbsOptions;
using pith::VerbsTransport;
using pith::VerbsWish;
using pith::test::FakeVerbs;

// The network as each test finds it; all that was made must be gone at the end.
struct CleanNetwork {
  CleanNetwork() { FakeVerbs::instance() = FakeVerbs(); }
  ~CleanNetwork() { CHECK(FakeVerbs::objects() == 0); }
  CleanNetwork(const CleanNetwork&) = delete;
  CleanNetwork& operator=(const CleanNetwork&) = delete;
};

// Memory is not watched in most tests: UCX's event library does not mix with sanitizers.
inline VerbsOptions unwatched(std::uint32_t window = 0) {
  VerbsOptions options;
  options.watch = false;
  options.window = window;
  return options;
}

// Messages from this size on are written.
inline VerbsOptions written_from(std::size_t bytes = std::size_t{32} << 10,
                                 VerbsOptions options = unwatched()) {
  options.write_bytes = bytes;
  return options;
}

struct VerbsRank : Rank {
  VerbsRank(int rank, const Names& names, const VerbsOptions& options, const VerbsWish& wish = {},
            const pith::VerbsLibrary& library = FakeVerbs::library())
      : Rank(rank, 2) {
    Expected<std::unique_ptr<VerbsTransport>> made =
        VerbsTransport::create(library, wish, scheduler, mailbox, rank, 2, options);
    must(static_cast<bool>(made), made.error().message());
    verbs = std::move(*made);
    transport = verbs.get();
    verbs->on_peer_lost = [this](int, const Error& loss) {
      ++losses;
      lost = loss;
    };
    const Expected<std::string> mine = verbs->listen();
    must(static_cast<bool>(mine), mine.error().message());
    const auto peer = static_cast<std::size_t>(1 - rank);
    std::vector<std::string> all(2);
    all[peer] = names.swap(rank, *mine);
    std::vector<bool> attached;
    const std::uint64_t deadline = monotonic_ns() + 20 * second_ns;
    must(!verbs->attach(all, attached, deadline), "attach");
    must(attached[peer], "the peer cannot be reached");
    names.swap(rank, "attached");
    std::vector<std::uint8_t> use(2, 0);
    use[peer] = 1;
    const Error connected = verbs->connect(all, use, deadline);
    must(!connected, connected.message());
  }
  // Looks at the links, as the communicator's owner does, until the peer is lost.
  void await_loss() {
    until(
        [&] {
          verbs->look_at_links(monotonic_ns());
          return losses != 0;
        },
        "loss");
  }
  void leave() {
    meet(1 - rank(), 50000);
    verbs->close(monotonic_ns() + 10 * second_ns);
    must(losses == 0, lost.message());
  }

  std::unique_ptr<VerbsTransport> verbs;
  Error lost;
  int losses = 0;
};

// A receive or send of a communicator that ends in the middle.
struct Doomed {
  explicit Doomed(std::size_t bytes) : data(bytes, std::byte{7}) { comm.id = 9; }
  void prepare(pith::Operation& operation, int peer) {
    operation.comm = &comm;
    operation.peer = peer;
    operation.waiter = std::noop_coroutine();
    operation.remaining = &remaining;
  }
  void revoke(VerbsRank& self) {
    comm.revoked = Error(Code::remote, "revoked by the test");
    self.mailbox.quiesce(comm, comm.revoked);
    self.transport->quiesce(comm, comm.revoked);
    must(remaining == 0, "the operation has not ended");
  }

  CommState comm;
  std::vector<std::byte> data;
  int remaining = 1;
  Send send;
  Receive receive;
};

}  // namespace pith_test
