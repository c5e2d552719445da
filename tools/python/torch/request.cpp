#include "request.hpp"

#include <sched.h>

#include <algorithm>
#include <thread>
#include <utility>

namespace pith_torch {

CallGroup::~CallGroup() {
  if (!open_) return;
  // The group has a failed call, so its end starts none.
  pithRequest_t request = nullptr;
  if (pithGroupEndAsync(&request) == pithSuccess) pithWait(request);
}

void CallGroup::run() {
  open_ = false;
  check(pithGroupEnd());
}

pithRequest_t CallGroup::run_in_background() {
  open_ = false;
  pithRequest_t request = nullptr;
  check(pithGroupEndAsync(&request));
  return request;
}

void Backoff::pause(Deadline deadline) {
  constexpr unsigned yields = 50;
  if (++turns_ <= yields) {
    sched_yield();
    return;
  }
  Clock::duration nap = std::chrono::microseconds(std::min(10 + (turns_ - yields), 200U));
  if (deadline) nap = std::clamp(*deadline - Clock::now(), Clock::duration(0), nap);
  std::this_thread::sleep_for(nap);
}

void RequestPending::end(pithResult_t result) {
  request_ = nullptr;
  check(result);
  finish_();
}

bool RequestPending::poll() {
  int done = 0;
  const pithResult_t result = pithTest(request_, &done);
  if (done) end(result);
  return done != 0;
}

bool RequestPending::wait(Deadline deadline) {
  if (!deadline) {
    end(pithWait(request_));
    return true;
  }
  for (Backoff backoff; !poll(); backoff.pause(deadline)) {
    if (Clock::now() >= *deadline) return false;
  }
  return true;
}

}  // namespace pith_torch
