// The bootstrap root: a thread in the process that made the id. It gathers one blob from each rank
// and sends all blobs to every rank, for as many rounds as the ranks ask for. Unauthenticated, slow
// and half-open connections are refused without delaying others.
#pragma once

#include <string>

#include "settings/settings.hpp"
#include "startup/unique_id.hpp"
#include "transport/socket.hpp"

namespace pith {

// An upper bound on nranks: a wrong value must not allocate memory at the root.
inline constexpr int most_ranks = 1 << 20;

class Rendezvous {
 public:
  // Listens where the settings say. `members`: UniqueId::members.
  static Expected<UniqueId> open(const Settings& settings, int members = 0);
  // Listens on `host` and serves in the background until all ranks have gone or the process ends.
  // `timeout_s`: how long the first rank to join waits for the last one.
  static Expected<UniqueId> open(const std::string& host, double timeout_s, PortRange ports = {},
                                 int members = 0);
  // Listens at an address that all ranks know beforehand: `host` and `port` (a range of one), for
  // holders of id.secret. Serves one start-up only, so that another can follow at that port: until
  // all have joined or, after a failure, all have been told, the next start opens in this process,
  // or 2 minutes have passed. `before`: appended to the error when ranks do not join; says how the
  // port was used earlier; may be empty.
  static Error open_at(const std::string& host, const PortRange& port, const UniqueId& id,
                       double timeout_s, const std::string& before = {});
  // A rank of this process cannot reach the root. If the root is in this process, it tells the
  // others.
  static void cannot_join(const UniqueId& id, const Error& error);
};

}  // namespace pith
