// Starts the rank processes, passes the unique id to them, and ensures that none outlives the run.
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
  // Starts this program once per rank, on one host each if there are hosts. The kernel kills ranks
  // whose launcher dies.
  RankProcesses(const Options& options, const Board& board, Hosts* hosts = nullptr);
  // Ends and reaps all processes that still run.
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  // Passes rank 0's id on, changes the links as it asks, and waits for all ranks. Throws
  // std::runtime_error, naming the failed rank, and TimeOver.
  void run(const Deadline& deadline);

 private:
  struct Process {
    int rank;
    pid_t pid;  // 0: reaped
    int control_fd;
    int status;
  };

  // `holder`: of the rank's host; 0: this host.
  void start(const Options& options, const Board& board, int rank, pid_t holder);
  void serve_rank0();
  void pass_on(const pithUniqueId& id);
  bool reap(Process& process);
  std::string describe_failures();
  void end_all();

  std::vector<Process> processes_;
  Hosts* hosts_;
};

// The ranks' side of the control channel: rank 0 creates the id and sends it, the others receive
// it.
pithUniqueId agree_on_id(const Options& options);
// Rank 0 asks for links of this rate and waits until they are.
void ask_for_links(const Options& options, double bits_per_s);

}  // namespace pith::demo
