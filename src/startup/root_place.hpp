// Where the bootstrap root listens when all ranks know its address beforehand.
#pragma once

#include <string>

#include "settings/settings.hpp"
#include "startup/launch.hpp"

namespace pith {

struct RootPlace {
  std::string listen;   // host that rank 0 binds to
  std::string address;  // where this rank connects: "10.0.0.1:5000"
  bool loopback = false;
};

// Resolves the host where the launch gives a name.
Expected<RootPlace> find_root(const Launch& launch, const Settings& settings);

}  // namespace pith
