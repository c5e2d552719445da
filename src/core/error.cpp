#include "core/error.hpp"

#include <cerrno>
#include <cstring>
#include <system_error>

#include "core/descriptor_limit.hpp"

namespace pith {

Error::Error(Code code, std::string message, int rank)
    : detail_(new Detail{code, rank, std::move(message)}) {}

void Error::drop(Detail* detail) noexcept {
  if (detail->references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete detail;
}

// Never destroyed: threads may still run when the process exits.
const Error& out_of_memory() {
  static const Error& error = *new Error(Code::system, "out of memory in a collective");
  return error;
}

Error system_error(std::string what, int errno_value) {
  const std::string limit = errno_value == EMFILE ? "; " + descriptor_limit_text() : "";
  return {Code::system, what + ": " + std::generic_category().message(errno_value) + limit};
}

}  // namespace pith
