// Ends a process whose test takes too long, as nccl-tests' --timeout does.
#pragma once

namespace pith_perf {

class Watchdog {
 public:
  // Ends the process, with a message, `seconds` after the last rearm(); 0: never. Processes other
  // than 0 wait longer, so that process 0 reports first and ends them.
  static void start(int seconds, int process);
  static void rearm();
  // Whether standard output is in the middle of a line.
  static void line_is_open(bool open);
};

}  // namespace pith_perf
