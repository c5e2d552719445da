// The one error type of the library. Success is a null pointer, which costs nothing to pass on. The
// first function that knows the cause writes the message; the others return it unchanged.
#pragma once

#include <atomic>
#include <string>
#include <utility>

namespace pith {

// Values equal pithResult_t.
enum class Code : int {
  success = 0,
  cuda = 1,
  system = 2,
  internal = 3,
  invalid_argument = 4,
  invalid_usage = 5,
  remote = 6,
  in_progress = 7,
};

class Error {
 public:
  Error() noexcept = default;
  // `rank`: the rank that the message is about, -1 if none.
  Error(Code code, std::string message, int rank = -1);
  Error(const Error& other) noexcept : detail_(other.detail_) { retain(); }
  Error(Error&& other) noexcept : detail_(std::exchange(other.detail_, nullptr)) {}
  Error& operator=(Error other) noexcept {
    std::swap(detail_, other.detail_);
    return *this;
  }
  ~Error() { release(); }

  explicit operator bool() const noexcept { return detail_ != nullptr; }
  Code code() const noexcept { return detail_ ? detail_->code : Code::success; }
  int rank() const noexcept { return detail_ ? detail_->rank : -1; }
  const char* message() const noexcept { return detail_ ? detail_->message.c_str() : ""; }

 private:
  struct Detail {
    Code code;
    int rank;
    std::string message;
    std::atomic<int> references{1};
  };

  void retain() const noexcept {
    if (detail_) detail_->references.fetch_add(1, std::memory_order_relaxed);
  }
  void release() noexcept {
    if (detail_) drop(std::exchange(detail_, nullptr));
  }
  static void drop(Detail* detail) noexcept;

  Detail* detail_ = nullptr;
};

// Made with the first engine, because there may be no memory to make an error when it is needed.
const Error& out_of_memory();

// The error of a failed system call: what was tried, then errno as text.
Error system_error(std::string what, int errno_value);

// A value, or the error that explains why there is none.
template <class T>
class Expected {
 public:
  Expected(T value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor)
  Expected(Error error) : value_(), error_(std::move(error)) {}  // NOLINT
  explicit operator bool() const noexcept { return !error_; }
  T& operator*() noexcept { return value_; }
  const T& operator*() const noexcept { return value_; }
  T* operator->() noexcept { return &value_; }
  const T* operator->() const noexcept { return &value_; }
  const Error& error() const noexcept { return error_; }

 private:
  T value_;
  Error error_;
};

}  // namespace pith
