// The process's one control thread: turns the control planes of its ranks, so that deaths, aborts
// and questions are handled whatever the application does. Started with the first plane; sleeps
// while nothing arrives, but looks every 100 ms.
#pragma once

#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "core/per_process.hpp"

namespace pith {

// An object that the thread turns.
class Controlled {
 public:
  virtual ~Controlled() = default;
  virtual void turn(std::uint64_t now_ns) = 0;
  // Readable when there is something to do; -1: none.
  virtual int descriptor() const = 0;
};

class ControlThread {
 public:
  static ControlThread& instance();

  // Turns it until remove(). Throws where no thread can be started; nothing has changed then.
  void add(Controlled& controlled);
  // Returns when `controlled` is not being turned any more. Not from a turn().
  void remove(const Controlled& controlled);
  // For work that no descriptor signals.
  void wake();
  // When the process ends; nothing is turned afterwards.
  void stop();
  bool stopped();

 private:
  friend class PerProcess<ControlThread>;
  ControlThread();
  ~ControlThread() = default;
  void run();

  std::mutex mutex_;    // guards the list
  std::mutex turning_;  // held during turns
  std::vector<Controlled*> all_;
  int wake_descriptor_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace pith
