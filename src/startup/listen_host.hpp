// The address on which a process listens, by its settings: PITH_HOST, else PITH_IFNAME and
// PITH_SOCKET_FAMILY, else what is likely to be right.
#pragma once

#include <string>
#include <vector>

#include "settings/settings.hpp"

namespace pith {

// For the bootstrap root, which nobody has reached yet.
Expected<std::string> root_host(const Settings& settings);

// How that comes about, for whoever looks at it: what was to be chosen from, and by which rule.
struct HostChoice {
  std::string host;
  std::string why;
  std::vector<std::string> considered;  // "eth0 (10.0.0.1)", in the system's order
};
Expected<HostChoice> explain_root_host(const Settings& settings);

// For a rank's data. `to_root` is its own end of the connection to the bootstrap root: whoever
// reaches the root's network reaches that, so without a wish all ranks use the network the root
// has chosen.
Expected<std::string> rank_host(const Settings& settings, const std::string& to_root);
// By which rule, for whoever looks at it.
std::string rank_host_rule(const Settings& settings);

}  // namespace pith
