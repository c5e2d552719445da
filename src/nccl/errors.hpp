// From errors of Pith to what NCCL's callers see: codes, and the last message of the process.
#pragma once

#include <string>

#include "api/last_error.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "nccl/abi.h"
#include "pith/pith.h"

namespace pith::nccl {

// The result of a function of pith.h on this thread. A message that came with it, in NCCL's names,
// is the last one of the process from now on.
ncclResult_t answer(pithResult_t result);
// The same where the message has had its line before.
ncclResult_t answer_again(pithResult_t result);
// `level`: of the line in a log that NCCL_DEBUG has opened; Pith's own takes it for news.
void remember(const char* message, LogLevel level) noexcept;
const char* last_error();

// Runs a body that returns Error; what it throws becomes one.
template <class Body>
ncclResult_t guarded(Body body) noexcept {
  return answer(api::guarded(body));
}

// The same for a body that returns a result, of which it has told already.
template <class Body>
ncclResult_t without_throwing(Body body) noexcept {
  ncclResult_t result = ncclSuccess;
  const ncclResult_t thrown = guarded([&] {
    result = body();
    return Error();
  });
  return thrown != ncclSuccess ? thrown : result;
}

// A result as it is; inside a group an error is the group's result too.
ncclResult_t fail_group(ncclResult_t result);

}  // namespace pith::nccl
