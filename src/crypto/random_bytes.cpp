#include "crypto/random_bytes.hpp"

#include <sys/random.h>

#include <cerrno>

namespace pith {

Error fill_random(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = getrandom(bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error("getrandom", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
  return {};
}

}  // namespace pith
