// Where the bootstrap root listens when all ranks know its address beforehand, and how they find
// it.
#pragma once

#include <string>

#include "settings/settings.hpp"
#include "startup/launch.hpp"

namespace pith {

struct RootPlace {
  std::string listen;   // rank 0 binds this host
  std::string address;  // the calling rank reaches it here: "10.0.0.1:5000"
  bool loopback = false;
};

// Asks the name service where the launch gives a name.
Expected<RootPlace> find_root(const Launch& launch, const Settings& settings);

}  // namespace pith
