// The process's one progress thread: drives engines that have background work and no other driver.
// Started with the first background call; sleeps while there is none.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "core/per_process.hpp"

namespace pith {

class Engine;

class ProgressThread {
 public:
  static ProgressThread& instance();

  // From the engine's join_background and leave_background. Throws where no thread can be started:
  // then nothing has changed.
  void enlist(Engine& engine);
  void remove(Engine& engine);
  // There is a reason to look again.
  void signal();
  // At the end of the process; nothing is driven afterwards.
  void stop();

 private:
  friend class PerProcess<ProgressThread>;
  ProgressThread() = default;
  ~ProgressThread() = default;
  void run();
  // One turn of every engine with background work and no driver; false: there was none at all.
  bool turn(unsigned& idle);

  std::mutex mutex_;  // guards engines_; held by the thread while it drives them
  std::vector<Engine*> engines_;
  std::atomic<std::uint32_t> signal_{0};  // counts reasons to look again
  std::atomic<bool> stop_{false};
  std::atomic<int> removing_{0};
  std::thread thread_;
};

}  // namespace pith
