// A thread that brings calls to their end which nobody waits for: those with a future, messages
// that another rank waits for, and those whose work the program has dropped. It starts with the
// first call in the background.
//
// A call that a program waits for soon is left to the program's thread, which is faster; so the
// thread looks at calls only after a while unless a future needs them.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "work_pith.hpp"

namespace pith_torch {

class Completer {
 public:
  Completer() = default;
  // Ends all calls first.
  ~Completer();
  Completer(const Completer&) = delete;
  Completer& operator=(const Completer&) = delete;

  void add(WorkPtr work);
  // A call's future is needed.
  void hurry();
  // Waits until the collectives in the background have ended. Returns the messages that have not:
  // they may never.
  std::vector<WorkPtr> stop();

 private:
  void run();
  void take_new(std::unique_lock<std::mutex>& lock);
  bool look_once();
  void wait_for_oldest();
  bool only_messages() const;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<WorkPtr> added_;
  bool hurried_ = false;
  bool stop_ = false;
  bool sleeps_long_ = false;
  std::thread thread_;
  // Of the thread alone.
  std::vector<WorkPtr> works_;
  std::chrono::microseconds pause_{0};
};

}  // namespace pith_torch
