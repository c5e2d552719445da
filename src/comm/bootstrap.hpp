// One rank's side of the start-up: a connection to the bootstrap root, over which all ranks
// exchange what they need to know of each other.
#pragma once

#include <string>
#include <vector>

#include "comm/unique_id.hpp"
#include "transport/socket.hpp"

namespace pith {

class Bootstrap {
 public:
  Bootstrap() = default;

  // Waits for the root; `timeout_s` is also what the root waits for the last rank.
  static Expected<Bootstrap> join(const UniqueId& id, int rank, int ranks, double timeout_s);

  // Collective: every rank's blob, by rank. Fails on all ranks where one is missing.
  Expected<std::vector<std::string>> gather(const std::string& mine);

  // This end of the connection: an address of ours on the root's network.
  Expected<std::string> host() const;
  std::uint64_t deadline_ns() const { return deadline_ns_; }

 private:
  Descriptor connection_;
  std::uint64_t deadline_ns_ = 0;
};

}  // namespace pith
