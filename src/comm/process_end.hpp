// Communicators that a process still holds when it ends by exit() or by returning from main. They
// leave in order then, so that nobody takes the end for a death and all that was sent arrives: an
// MPI or NCCL program that destroys nothing has made its last call, and must not fail the others'.
//
// Thread-safe. A forked child has none of its parent's.
#pragma once

#include <mutex>
#include <vector>

#include "core/per_process.hpp"

namespace pith {

class Communicator;

class ProcessEnd {
 public:
  static ProcessEnd& instance() { return PerProcess<ProcessEnd>::get(); }

  // One whose ranks are in several processes, until it is removed.
  void add(Communicator& communicator);
  void remove(Communicator& communicator);
  // Those that no call runs on leave. A rank in the middle of one is cut off by the process's end.
  void leave_all();

 private:
  std::mutex mutex_;  // held while they leave
  std::vector<Communicator*> held_;
};

}  // namespace pith
