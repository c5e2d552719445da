// How the processes of a run find each other: the number of each, and the unique id.
#pragma once

#include <pith/pith.h>

#include "frame/options.hpp"

namespace pith_perf {

struct Start {
  int process = 0;
  int processes = 1;
  pithUniqueId id = {};
};

// Hands the unique id from process 0 to the others of a local run, through a pipe that all inherit.
class IdPipe {
 public:
  IdPipe();  // throws std::system_error
  ~IdPipe();
  IdPipe(const IdPipe&) = delete;
  IdPipe& operator=(const IdPipe&) = delete;

  // In the child processes. Process 0 makes the id, because whoever makes it has to live on. Throws
  // std::runtime_error.
  Start meet(int process, int processes);

 private:
  int ends_[2];
};

// Throws std::runtime_error where a launcher has started several of this process, each of which
// would start --ranks of its own, or may have.
void check_not_launched(const Options& options);

// Of a process that mpirun, srun or torchrun started as a rank, or that nobody did: it is alone
// then. Throws std::runtime_error, also where a launcher's variables are there in part.
Start start_from_environment();

}  // namespace pith_perf
