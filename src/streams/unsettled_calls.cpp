#include "streams/unsettled_calls.hpp"

#include <sched.h>

#include "core/clock.hpp"

namespace pith {

void UnsettledCalls::add(StreamCall& call) {
  calls_.push_back(&call);
  count_.store(calls_.size(), std::memory_order_release);
}

void UnsettledCalls::open_all() {
  std::vector<StreamCall*> ended;
  ended.swap(calls_);
  for (StreamCall* call : ended) open_(*call);
  count_.store(0, std::memory_order_release);
}

bool UnsettledCalls::progress() {
  if (calls_.empty()) return false;
  settling_.look();  // a call enqueued just before may have kept it from settling
  if (!settling_.settled(monotonic_ns())) return false;
  open_all();
  return true;
}

bool UnsettledCalls::arm() {
  if (!any()) return true;
  sched_yield();
  return false;
}

}  // namespace pith
