// Strands of compressed calls: what one that ends early does to the others, and work that is done
// with all other ranks at once.
#pragma once

#include <fmt/format.h>

#include <array>
#include <coroutine>
#include <span>
#include <string_view>
#include <utility>

#include "collectives/call.hpp"

namespace pith {

// The number by which errors name a rank: the communicator's, in a sub-call, too.
inline int named_rank(const Call& call, int rank) {
  const int peer = call.route(rank).peer;
  return peer >= 0 ? peer : call.rank_at(rank);  // -1: this rank, unless in a sub-call
}

// Fails the call because of a malformed message. `what`: as in "a list that cannot be read".
inline Error malformed(const Call& call, int from, std::string_view what) {
  const int rank = named_rank(call, from);
  return call.fail(Error(Code::internal, fmt::format("rank {} sent {}", rank, what), rank));
}

// Fails the call for an error of this rank alone, such as lack of memory. Verbs that fail have done
// so already.
inline Error fail_here(const Call& call, const Error& error) {
  if (call.comm().revoked) return call.comm().revoked;
  const int self = named_rank(call, call.rank());
  return call.fail(Error(error.code(), fmt::format("rank {}: {}", self, error.message()), self));
}

// Runs `work` as a strand. An error fails the call, since other strands and ranks wait for what the
// strand would have done.
inline Task<Error> strand(Call& call, Task<Error> work) {
  Error error = co_await std::move(work);
  if (error) co_return fail_here(call, error);
  co_return error;
}

// Closes a channel when its strand ends, for whatever reason, so that no other strand waits for it.
template <class Queue>
class CloseAtEnd {
 public:
  explicit CloseAtEnd(Queue& queue) : queue_(queue) {}
  CloseAtEnd(const CloseAtEnd&) = delete;
  CloseAtEnd& operator=(const CloseAtEnd&) = delete;
  ~CloseAtEnd() { queue_.close(); }

 private:
  Queue& queue_;
};

// Wakes one waiting strand; any strand may set it. If set while that strand is busy, once or more
// often, the next wait() is ready.
class Event {
 public:
  explicit Event(Scheduler& scheduler) : scheduler_(scheduler) {}
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  class Wait {
   public:
    explicit Wait(Event& event) : event_(event) {}
    bool await_ready() const { return event_.set_ || event_.closed_; }
    void await_suspend(std::coroutine_handle<> waiter) { event_.waiter_ = waiter; }
    bool await_resume() { return std::exchange(event_.set_, false); }

   private:
    Event& event_;
  };
  // Awaits to false if the event is closed and not set.
  Wait wait() { return Wait(*this); }
  void set() {
    set_ = true;
    wake();
  }
  void close() {
    closed_ = true;
    wake();
  }

 private:
  void wake() {
    if (waiter_) scheduler_.make_ready(std::exchange(waiter_, nullptr));
  }

  Scheduler& scheduler_;
  bool set_ = false;
  bool closed_ = false;
  std::coroutine_handle<> waiter_;
};

// Runs start(k) -> Task<Error> for k below n: so many at once that a link is busy, so few that
// thousands of ranks take no more memory than a few. The call has the memory of frames.
template <class Start>
Task<Error> with_each(Call&, std::size_t n, Start start) {
  constexpr std::size_t most_in_flight = 16;
  std::array<Task<Error>, most_in_flight> tasks;
  for (std::size_t first = 0; first < n; first += most_in_flight) {
    const std::size_t batch = std::min(most_in_flight, n - first);
    for (std::size_t i = 0; i < batch; ++i) tasks[i] = start(static_cast<int>(first + i));
    Error error = co_await when_all(std::span(tasks).first(batch));
    if (error) co_return error;
  }
  co_return Error();
}

// The same for distances 1 to P-1.
template <class Start>
Task<Error> with_every_other(Call& call, Start start) {
  return with_each(call, static_cast<std::size_t>(call.size() - 1),
                   [start](int k) { return start(k + 1); });
}

}  // namespace pith
