// Where the ranks of a test find each other: a root that one of them opened, or a port.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <string>

#include "catch.hpp"
#include "startup/rendezvous.hpp"
#include "tests/api/ranks.hpp"
#include "transport/socket.hpp"

namespace pith::test {

inline UniqueId open_root(double timeout_s) {
  const Expected<UniqueId> id = Rendezvous::open("127.0.0.1", timeout_s);
  ranks::ensure(static_cast<bool>(id), id.error().message());
  return *id;
}

// Below the ports that the system gives to connections, so that it stays free for a while.
inline int free_port() {
  const auto least = static_cast<std::uint16_t>(20'000 + getpid() % 9'000);
  const Expected<Descriptor> probe =
      listen_on("127.0.0.1", {least, static_cast<std::uint16_t>(least + 500)});
  REQUIRE(probe);
  const std::string own = format_address(*local_address(probe->get()));
  return std::stoi(own.substr(own.find(':') + 1));
}

}  // namespace pith::test
