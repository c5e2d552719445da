// A rank of two that attach each other's shared memory.
#pragma once

#include <string>
#include <vector>

#include "transport/ring_support.hpp"
#include "transport/shm/shm.hpp"
#include "transport/two_ranks.hpp"

namespace pith_test {

using pith::ShmOptions;

// `secret_byte` differs in the test of strangers.
struct ShmRank : Rank {
  ShmRank(int rank, const Names& names, const ShmOptions& options, std::byte secret_byte = {},
          std::uint64_t patience_ns = 20 * second_ns)
      : Rank(rank, 2), shm(scheduler, mailbox, rank, 2, secret_of(secret_byte), options) {
    transport = &shm;
    auto mine = shm.listen();
    must(static_cast<bool>(mine), mine.error().message());
    std::vector<std::string> all(2);
    all[static_cast<std::size_t>(1 - rank)] = names.swap(rank, *mine);
    std::vector<bool> reached;
    const Error error = shm.attach(all, reached, monotonic_ns() + patience_ns);
    must(!error, error.message());
    attached = reached[static_cast<std::size_t>(1 - rank)];
    shm.on_peer_lost = [this](int, const Error& loss) { lost = loss; };
  }
  static pith::ShmTransport::Secret secret_of(std::byte byte) {
    pith::ShmTransport::Secret secret{};
    secret.fill(byte);
    return secret;
  }

  pith::ShmTransport shm;
  bool attached = false;
  Error lost;
};

inline ShmOptions tiny_options() {
  ShmOptions options;
  options.shape = tiny_shape();
  return options;
}

inline void leave(ShmRank& self) {
  self.meet(1 - self.rank(), 50000);
  self.shm.close(0);
}

}  // namespace pith_test
