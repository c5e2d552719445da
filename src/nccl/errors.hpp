// Translates Pith's errors to NCCL's codes and keeps the last message of the process.
#pragma once

#include <string>

#include "api/last_error.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "nccl/abi.h"
#include "pith/pith.h"

namespace pith::nccl {

// Converts the result of a pith.h function called on this thread. Its message, if any, becomes the
// process's last one, with NCCL's names.
ncclResult_t answer(pithResult_t result);
// The same if the message has been logged already.
ncclResult_t answer_again(pithResult_t result);
// `level` applies to a log opened by NCCL_DEBUG; Pith's own log uses info.
void remember(const char* message, LogLevel level) noexcept;
const char* last_error();

// Runs a body that returns Error; exceptions become errors.
template <class Body>
ncclResult_t guarded(Body body) noexcept {
  return answer(api::guarded(body));
}

// The same for a body that returns a result and has reported its errors itself.
template <class Body>
ncclResult_t reported_by(Body body) noexcept {
  ncclResult_t result = ncclSuccess;
  const ncclResult_t thrown = guarded([&] {
    result = body();
    return Error();
  });
  return thrown != ncclSuccess ? thrown : result;
}

// Returns the result; inside a group an error also becomes the group's result.
ncclResult_t fail_group(ncclResult_t result);

}  // namespace pith::nccl
