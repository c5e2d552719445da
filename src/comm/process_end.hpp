// The communicators that a process still holds when it ends by exit() or by returning from main.
// They then leave in order: no rank takes the end for a death, and all that was sent arrives. An
// MPI or NCCL program that destroys nothing has made its last call, and must not make those of
// others fail.
//
// Thread-safe. A forked child has none of its parent's communicators.
#pragma once

#include <mutex>
#include <vector>

#include "core/per_process.hpp"

namespace pith {

class Communicator;

class ProcessEnd {
 public:
  static ProcessEnd& instance() { return PerProcess<ProcessEnd>::get(); }

  // Adds a communicator whose ranks are in several processes. It must be removed before it is
  // destroyed.
  void add(Communicator& communicator);
  void remove(Communicator& communicator);
  // Communicators on which no call runs leave. A running call is cut off when the process ends.
  void leave_all();

 private:
  std::mutex mutex_;  // also held during leave_all()
  std::vector<Communicator*> held_;
};

}  // namespace pith
