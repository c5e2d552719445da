// What a handle with blocking = 0 has begun: a thread that makes a communicator, or calls in
// flight. One at a time; the next call is refused until it has ended.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include "core/run_together.hpp"

struct pithRequest;

namespace pith::api {

using pith::without_throwing;

class Background {
 public:
  // `job` runs on a thread of its own. Throws where none can be made.
  explicit Background(std::function<Error()> job);
  // Calls that run in the background already.
  explicit Background(std::unique_ptr<pithRequest> calls);
  // Waits for the end.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  bool done() const;
  // Precondition: done().
  Error error() const;

 private:
  std::unique_ptr<pithRequest> calls_;
  Error error_;
  std::atomic<bool> done_{false};
  std::thread thread_;
};

}  // namespace pith::api
