// The message of the calling thread's last error.
#pragma once

#include "core/error.hpp"
#include "core/run_together.hpp"
#include "pith/pith.h"

namespace pith::api {

pithResult_t report(Code code, std::string message);
pithResult_t report_failure(const Error& error);
// Remembers the message of an error, if there is one, and returns its code.
inline pithResult_t report(const Error& error) {
  if (!error) [[likely]]
    return pithSuccess;
  return report_failure(error);
}
const char* last_error();
// Notes that this thread's last error is of a call on `comm`, a handle that may be freed already.
void last_error_is_of(const void* comm);
// The last error's message if it is of a call on `comm`, else "".
const char* last_error_of(const void* comm);
// For a new handle: forgets errors of an earlier handle at the same address.
void begin_errors_of(const void* comm);
// Returns the error's message and keeps the error for this thread, so that the string stays valid
// whatever other threads do, until this thread has asked for several other messages.
const char* keep_for_this_thread(const Error& error);

// Runs a body that returns Error and turns its exceptions into errors.
template <class Body>
pithResult_t guarded(const Body& body) noexcept {
  return report(without_throwing(body));
}

// The same for a call on a communicator. `comm` is not dereferenced.
template <class Body>
pithResult_t guarded(const void* comm, const Body& body) noexcept {
  const pithResult_t result = guarded(body);
  if (result != pithSuccess && result != pithInProgress) last_error_is_of(comm);
  return result;
}

}  // namespace pith::api
