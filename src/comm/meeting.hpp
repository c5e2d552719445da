// How the ranks of a communicator find each other: introduce themselves at the bootstrap root,
// attach over shared memory where that works, connect by TCP everywhere else.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/control_seat.hpp"
#include "core/engine.hpp"
#include "core/settings.hpp"
#include "transport/shm.hpp"
#include "transport/tcp.hpp"

namespace pith {

class Meeting {
 public:
  Meeting(Engine& engine, int rank, int ranks, const ControlSeat& seat, Gatherer& gatherer,
          const Settings& settings);

  // Collective; the deadline is the gatherer's. After an error the transports are of no use.
  Error hold();

  // What came of it. A transport that reaches nobody is null.
  std::unique_ptr<ShmTransport> shm;
  std::unique_ptr<TcpTransport> tcp;
  std::vector<std::uint8_t> by_tcp;  // by rank: reached by TCP, else by shared memory
  bool all_share_memory = true;      // every two ranks; the same on all
  bool any_share_memory = false;
  std::size_t local_ranks = 1;  // that share our memory
  std::size_t host_ranks = 1;   // that have our address too

 private:
  Error introduce();
  Error attach();
  Error connect();

  const int rank_;
  const std::size_t ranks_;
  const std::string host_;
  Gatherer& gatherer_;
  const Settings& settings_;
  std::vector<std::string> names_;      // of the ranks' shared memory
  std::vector<std::string> addresses_;  // of their sockets
};

// Whether the setting allows a transport of this name.
bool allows(const Settings& settings, std::string_view transport);

}  // namespace pith
