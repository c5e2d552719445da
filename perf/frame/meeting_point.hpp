// Rendezvous of a run's processes: each one's number, and the unique id.
#pragma once

#include <pith/pith.h>

#include "frame/options.hpp"

namespace pith_perf {

struct Start {
  int process = 0;
  int processes = 1;
  pithUniqueId id = {};
};

// Passes the unique id from process 0 to the others of a local run, through an inherited pipe.
class IdPipe {
 public:
  IdPipe();  // throws std::system_error
  ~IdPipe();
  IdPipe(const IdPipe&) = delete;
  IdPipe& operator=(const IdPipe&) = delete;

  // Called in the child processes. Process 0 creates the id, since its creator has to stay alive.
  // Throws std::runtime_error.
  Start meet(int process, int processes);

 private:
  int ends_[2];
};

// Throws std::runtime_error if a launcher has, or may have, started several instances of this
// process, each of which would start --ranks ranks.
void check_not_launched(const Options& options);

// For a process started as a rank by mpirun, srun or torchrun; without a launcher it is alone.
// Throws std::runtime_error, also if a launcher's variables are incomplete.
Start start_from_environment();

}  // namespace pith_perf
