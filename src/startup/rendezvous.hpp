// The bootstrap root: a thread in the process that made the id, where all ranks of a communicator
// meet. It gathers one blob from each rank and sends all of them to everybody, as often as the
// ranks ask. Unauthenticated, slow and half-open connections are refused without holding anyone up.
#pragma once

#include <string>

#include "settings/settings.hpp"
#include "startup/unique_id.hpp"
#include "transport/socket.hpp"

namespace pith {

// More in one communicator is a mistake, and would take memory at the root before anyone notices.
inline constexpr int most_ranks = 1 << 20;

class Rendezvous {
 public:
  // Where the settings say.
  static Expected<UniqueId> open(const Settings& settings);
  // Listens on `host` and serves in the background until all ranks have gone or the process ends.
  // `timeout_s`: how long the first rank that comes waits for the last one.
  static Expected<UniqueId> open(const std::string& host, double timeout_s, PortRange ports = {});
  // Where all ranks know beforehand: `host` and `port`, a range of one, for holders of id.secret.
  // Listens for one meeting only, so that another may follow at that port: until all have come or,
  // where it has failed, all have heard why, the next one is opened in this process, or 2 minutes
  // have passed. `before`: what is told of the port where ranks do not come; may be empty.
  static Error open_at(const std::string& host, const PortRange& port, const UniqueId& id,
                       double timeout_s, const std::string& before = {});
  // A rank of this process cannot come to the root, which tells all others if it is here as well.
  static void cannot_join(const UniqueId& id, const Error& error);
};

}  // namespace pith
