// The process's only progress thread. It drives engines that have background work and no other
// driver. It starts with the first engine that joins and sleeps while there is no background work.
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

  // For the engine's join_background() and leave_background(). enlist() throws if the thread cannot
  // be started, and has then changed nothing.
  void enlist(Engine& engine);
  void remove(Engine& engine);
  // Wakes the thread, because there may be new work.
  void signal();
  // Ends the thread, at exit; it drives no engine afterwards.
  void stop();

 private:
  friend class PerProcess<ProgressThread>;
  ProgressThread() = default;
  ~ProgressThread() = default;
  void run();
  // One turn of every engine with background work and no other driver. False if no engine has
  // background work.
  bool turn(unsigned& idle);

  std::mutex mutex_;  // guards engines_; the thread holds it while it drives them
  std::vector<Engine*> engines_;
  std::atomic<std::uint32_t> signal_{0};  // counts calls of signal()
  std::atomic<bool> stop_{false};
  std::atomic<int> removing_{0};
  std::thread thread_;
};

}  // namespace pith
