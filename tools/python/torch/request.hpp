// A group of libpith's calls that runs in the background.
#pragma once

#include <functional>

#include "errors.hpp"
#include "pith/pith.h"
#include "work_pith.hpp"

namespace pith_torch {

// Collects this thread's calls of libpith; an exception drops them.
class CallGroup {
 public:
  CallGroup() { check(pithGroupStart()); }
  ~CallGroup();
  CallGroup(const CallGroup&) = delete;
  CallGroup& operator=(const CallGroup&) = delete;

  void run();
  pithRequest_t run_in_background();

 private:
  bool open_ = true;
};

// Sleeps for a part of what has been waited, so that looking costs a long wait no core and makes it
// hardly longer.
class Backoff {
 public:
  // Never past the deadline.
  void pause(Deadline deadline);

 private:
  unsigned turns_ = 0;
  Clock::time_point since_;
};

class RequestPending final : public Pending {
 public:
  // `finish` runs once the group has ended without an error.
  RequestPending(pithRequest_t request, std::function<void()> finish)
      : request_(request), finish_(std::move(finish)) {}
  bool poll() override;
  bool wait(Deadline deadline) override;

 private:
  void end(pithResult_t result);

  pithRequest_t request_;
  std::function<void()> finish_;
  Backoff backoff_;
};

}  // namespace pith_torch
