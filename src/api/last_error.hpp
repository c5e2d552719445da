// The message of this thread's last error.
#pragma once

#include <system_error>

#include "core/error.hpp"
#include "pith/pith.h"

namespace pith::api {

// Remembers the error's message where there is one; returns its code.
pithResult_t report(const Error& error);
pithResult_t report(Code code, std::string message);
const char* last_error();
// This thread's last error came of a call on this handle, which need not be there any more.
void last_error_is_of(const void* comm);
// "" where it came of something else.
const char* last_error_of(const void* comm);
// The handle is a new one, whoever had its address before.
void begin_errors_of(const void* comm);
// The error's message, in this thread's keeping: it stays until this thread has asked for several
// other ones, whatever other threads do to whom the error belongs.
const char* keep_for_this_thread(const Error& error);

// Runs a body that returns Error; what it throws becomes one.
template <class Body>
pithResult_t guarded(Body body) noexcept {
  try {
    return report(body());
  } catch (const std::bad_alloc&) {
    return report(Code::system, "out of memory");
  } catch (const std::system_error& error) {
    return report(Code::system, error.what());
  } catch (const std::exception& exception) {
    return report(Code::internal, exception.what());
  }
}

// The same for a call on a communicator; `comm` is not looked at.
template <class Body>
pithResult_t guarded(const void* comm, Body body) noexcept {
  const pithResult_t result = guarded(body);
  if (result != pithSuccess && result != pithInProgress) last_error_is_of(comm);
  return result;
}

}  // namespace pith::api
