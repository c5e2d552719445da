// Start-up of TcpTransport: makes the authenticated streams of every pair of ranks that uses it.
// The higher rank of a pair connects, the lower one accepts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "transport/handshake.hpp"
#include "transport/socket.hpp"

namespace pith {

struct TcpMeshPlan {
  Secret secret{};
  int rank = 0;
  int ranks = 1;
  int streams = 1;
  int listener = -1;
  std::span<const std::string> addresses;  // by rank
  std::span<const std::uint8_t> use;       // by rank: whether to connect to it
  Patience patience;
};

// The descriptor of stream s to rank r has index r * streams + s; empty where not used. Connections
// that do not prove the secret, and slow ones, are dropped without delaying others.
Expected<std::vector<Descriptor>> connect_mesh(const TcpMeshPlan& plan);

}  // namespace pith
