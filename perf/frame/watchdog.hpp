// Ends a process whose test makes no progress, as nccl-tests' --timeout does.
#pragma once

namespace pith_perf {

class Watchdog {
 public:
  // Ends the process, saying so, `seconds` after the last call of rearm(); 0: never.
  static void start(int seconds);
  static void rearm();
};

}  // namespace pith_perf
