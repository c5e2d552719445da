// The address on which a process listens: PITH_HOST, else PITH_IFNAME and PITH_SOCKET_FAMILY, else
// a guess.
#pragma once

#include <string>
#include <vector>

#include "settings/settings.hpp"

namespace pith {

// For the bootstrap root.
Expected<std::string> root_host(const Settings& settings);

// The choice with its reason and the alternatives, for logs.
struct HostChoice {
  std::string host;
  std::string why;
  std::vector<std::string> considered;  // "eth0 (10.0.0.1)", in the system's order
};
Expected<HostChoice> explain_root_host(const Settings& settings);

// For a rank's data. `to_root` is the local address of its connection to the bootstrap root. It is
// the default: all ranks then use the network that the root has chosen.
Expected<std::string> rank_host(const Settings& settings, const std::string& to_root);
// The rule that rank_host applied, for logs.
std::string rank_host_rule(const Settings& settings);

}  // namespace pith
