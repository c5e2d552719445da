// How far one strand of a call may be ahead of another, in chunks. Who sends without waiting for
// anything would fill the wires to all peers, and messages that others need first lie behind that.
#pragma once

#include <coroutine>
#include <cstddef>
#include <utility>

#include "core/scheduler.hpp"

namespace pith {

// One strand of each kind, both on the same scheduler.
class Lead {
 public:
  Lead(Scheduler& scheduler, std::size_t most) : scheduler_(scheduler), most_(most) {}
  Lead(const Lead&) = delete;
  Lead& operator=(const Lead&) = delete;

  class Wait {
   public:
    Wait(Lead& lead, std::size_t chunk) : lead_(lead), chunk_(chunk) {}
    bool await_ready() const { return lead_.allows(chunk_); }
    void await_suspend(std::coroutine_handle<> waiter) {
      lead_.waiter_ = waiter;
      lead_.waits_for_ = chunk_;
    }
    void await_resume() const {}

   private:
    Lead& lead_;
    std::size_t chunk_;
  };

  // The strand in front, before its chunk: suspends while the other one is too far behind.
  Wait before(std::size_t chunk) { return Wait(*this, chunk); }

  // The one behind: so many chunks are done.
  void done(std::size_t chunks) {
    done_ = chunks;
    wake();
  }
  // It has ended, well or not: nothing holds the other one back any more.
  void end() {
    ended_ = true;
    wake();
  }

 private:
  bool allows(std::size_t chunk) const { return ended_ || chunk < done_ + most_; }
  void wake() {
    if (waiter_ && allows(waits_for_)) scheduler_.make_ready(std::exchange(waiter_, nullptr));
  }

  Scheduler& scheduler_;
  std::size_t most_;
  std::size_t done_ = 0;
  bool ended_ = false;
  std::size_t waits_for_ = 0;
  std::coroutine_handle<> waiter_;
};

// Ends the lead with the strand that lags.
class LeadEnd {
 public:
  explicit LeadEnd(Lead& lead) : lead_(lead) {}
  ~LeadEnd() { lead_.end(); }
  LeadEnd(const LeadEnd&) = delete;
  LeadEnd& operator=(const LeadEnd&) = delete;

 private:
  Lead& lead_;
};

}  // namespace pith
