// An error as an exception, for code that cannot return an Error, such as a Compute whose run()
// returns after the kernel has ended. Like bad_alloc it is caught at the entry of the library's
// threads.
#pragma once

#include <exception>
#include <utility>

#include "core/error.hpp"

namespace pith {

class Failure final : public std::exception {
 public:
  explicit Failure(Error error) : error_(std::move(error)) {}
  const Error& error() const noexcept { return error_; }
  const char* what() const noexcept override { return error_.message(); }

 private:
  Error error_;
};

}  // namespace pith
