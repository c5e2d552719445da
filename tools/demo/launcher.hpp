// Starts the rank processes, hands them the unique id, and sees to it that none outlives the run.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "pith/pith.h"
#include "tools/demo/board.hpp"
#include "tools/demo/deadline.hpp"
#include "tools/demo/hosts.hpp"
#include "tools/demo/options.hpp"

namespace pith::demo {

class RankProcesses {
 public:
  // Starts this program once per rank, on a host each where there are hosts. A rank that loses the
  // launcher is killed by the kernel.
  RankProcesses(const Options& options, const Board& board, const Hosts* hosts = nullptr);
  // Ends and reaps whatever still runs.
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  // Passes rank 0's id on and waits for all ranks. Throws std::runtime_error, naming the culprit,
  // when a rank fails, and TimeOver.
  void run(const Deadline& deadline);

 private:
  struct Process {
    int rank;
    pid_t pid;  // 0: reaped
    int control_fd;
    int status;
  };

  // `holder`: of the rank's host; 0: here.
  void start(const Options& options, const Board& board, int rank, pid_t holder);
  void pass_on_id();
  bool reap(Process& process);
  std::string describe_failures();
  void end_all();

  std::vector<Process> processes_;
};

// The ranks' side of the control channel: rank 0 creates the id and offers it, the others take it.
pithUniqueId agree_on_id(const Options& options);

}  // namespace pith::demo
