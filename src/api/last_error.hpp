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

}  // namespace pith::api
