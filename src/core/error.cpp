#include "core/error.hpp"

#include <cstring>
#include <system_error>

namespace pith {

Error::Error(Code code, std::string message, int rank)
    : detail_(new Detail{code, rank, std::move(message)}) {}

void Error::release() noexcept {
  if (!detail_) return;
  if (detail_->references.fetch_sub(1, std::memory_order_acq_rel) == 1) delete detail_;
}

Error system_error(std::string what, int errno_value) {
  return {Code::system, what + ": " + std::generic_category().message(errno_value)};
}

}  // namespace pith
