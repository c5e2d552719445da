// What a pithUniqueId holds: where the bootstrap root listens, and the job's secret.
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
  std::string address;  // of the root
  // The address was fixed before the root listened, so a rank that finds nobody there calls again.
  bool known_before = false;

  // Error where the bytes were not made by `store`.
  static Expected<UniqueId> load(std::span<const char, bytes> from);
  // Error where the address is too long.
  Error store(std::span<char, bytes> to) const;
};

}  // namespace pith
