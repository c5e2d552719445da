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
  constexpr std::chrono::microseconds shortest{10};
  constexpr std::chrono::microseconds longest{1000};
  constexpr int part = 32;
  if (++turns_ <= yields) {
    sched_yield();
    return;
  }
  const Clock::time_point now = Clock::now();
  if (turns_ == yields + 1) since_ = now;
  Clock::duration nap = std::clamp<Clock::duration>((now - since_) / part, shortest, longest);
  if (deadline) nap = std::clamp(*deadline - now, Clock::duration(0), nap);
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
  for (; !poll(); backoff_.pause(deadline)) {
    if (Clock::now() >= *deadline) return false;
  }
  return true;
}

}  // namespace pith_torch
