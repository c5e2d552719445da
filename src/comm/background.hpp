// Work that a non-blocking handle (blocking = 0) runs in the background: a thread that makes a
// communicator, or calls in flight. A handle runs one at a time; the next call is refused until it
// has ended.
#pragma once

#include <functional>
#include <memory>

#include "comm/request.hpp"

namespace pith {

class Background {
 public:
  Background() noexcept;
  // Runs `job` on a thread of its own. Throws if no thread can be started.
  explicit Background(std::function<Error()> job);
  // Holds calls that already run in the background.
  explicit Background(Request calls) noexcept;
  // Waits until the work has ended.
  ~Background();
  Background(Background&& other) noexcept;
  // Waits until the work that this object held before has ended.
  Background& operator=(Background&& other) noexcept;

  explicit operator bool() const { return job_ || calls_; }
  // Precondition of both: something has begun.
  bool done() const;
  // Precondition: done().
  Error error() const;

 private:
  struct Job;
  std::unique_ptr<Job> job_;
  Request calls_;
};

}  // namespace pith
