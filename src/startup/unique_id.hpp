// The contents of a pithUniqueId: where the bootstrap root listens, and the job's secret.
#pragma once

#include <array>
#include <span>
#include <string>

#include "core/error.hpp"
#include "transport/handshake.hpp"

namespace pith {

struct UniqueId {
  static constexpr std::size_t bytes = 128;

  Secret secret{};
  std::string address;  // of the root, "host:port"
  // The address was fixed before the root listened, so ranks retry until the root is there.
  bool known_before = false;
  // Of an id for ranks that join a communicator: how many ranks that has; 0: of a new one.
  int members = 0;

  // Fails where the bytes were not made by `store`.
  static Expected<UniqueId> load(std::span<const char, bytes> from);
  // Fails where the address is too long.
  Error store(std::span<char, bytes> to) const;
};

}  // namespace pith
