// Ends a process whose test takes too long, as nccl-tests' --timeout does.
#pragma once

namespace pith_perf {

class Watchdog {
 public:
  // Ends the process, saying so, `seconds` after the last call of rearm(); 0: never. Processes
  // other than 0 wait a while longer, for the one that says it to end them.
  static void start(int seconds, int process);
  static void rearm();
  // Whether a line of standard output has begun and not ended.
  static void line_is_open(bool open);
};

}  // namespace pith_perf
