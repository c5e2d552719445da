#include "transport/peer_transport.hpp"

#include <fmt/format.h>

namespace pith {

Error peer_lost(int rank, std::string_view how) {
  return {Code::remote, fmt::format("rank {} is lost: {}", rank, how), rank};
}

Error peer_left(int rank) { return {Code::remote, fmt::format("rank {} has left", rank), rank}; }

}  // namespace pith
