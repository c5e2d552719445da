// An error as an exception: of code that answers with something else than an error, a kernel that
// has ended when run() returns, say. It ends where the library's threads begin, as bad_alloc does.
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
