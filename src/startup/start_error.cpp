#include "startup/start_error.hpp"

#include <fmt/format.h>

namespace pith {

Error as_of_rank(int rank, const Error& error) {
  if (error.code() != Code::system || error.rank() >= 0) return error;
  return {error.code(), fmt::format("rank {}: {}", rank, error.message()), rank};
}

Error as_seen_elsewhere(const Error& error) {
  const bool ours = error.code() == Code::invalid_usage || error.code() == Code::remote;
  return ours ? error : Error(Code::remote, error.message(), error.rank());
}

}  // namespace pith
