// What a handle with blocking = 0 has begun: a thread that makes a communicator, or calls in
// flight. One at a time; the next call is refused until it has ended.
#pragma once

#include <functional>
#include <memory>

#include "comm/request.hpp"

namespace pith {

class Background {
 public:
  // Nothing has begun.
  Background() noexcept;
  // `job` runs on a thread of its own. Throws where none can be made.
  explicit Background(std::function<Error()> job);
  // Calls that run in the background already.
  explicit Background(Request calls) noexcept;
  // Waits for the end.
  ~Background();
  Background(Background&& other) noexcept;
  // Waits for the end of what was here.
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
