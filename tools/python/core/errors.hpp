// Result codes of pith.h as Python exceptions: the classes of pith/errors.py.
//
// All functions need the GIL.
#pragma once

#include <string>

#include "nanobind/nanobind.h"
#include "nanobind/stl/string.h"  // so that every file converts strings alike
#include "pith/pith.h"

namespace pith::python {

namespace nb = nanobind;

// Raises the exception of the result with this message. `failed`: the ranks that are known to be
// gone, for pithRemoteError.
[[noreturn]] void raise(pithResult_t result, const std::string& message,
                        const nb::tuple& failed = nb::tuple());
[[noreturn]] inline void refuse(const std::string& message) { raise(pithInvalidArgument, message); }

// What a call has returned and, if it failed, this thread's message.
struct Outcome {
  pithResult_t result = pithSuccess;
  std::string message = {};
};
// To be called on the thread of the call, right after it; needs no GIL.
Outcome outcome_of(pithResult_t result);
// Raises what the outcome tells, if it is a failure.
void check(const Outcome& outcome);
inline void check(pithResult_t result) {
  if (result != pithSuccess) check(outcome_of(result));
}

}  // namespace pith::python
