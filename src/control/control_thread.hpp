// The process's one control thread: turns the control planes of its ranks, so that deaths, aborts
// and questions are heard whatever the application does. Started with the first of them; sleeps
// while nothing comes, but for a look every 100 ms.
#pragma once

#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "core/per_process.hpp"

namespace pith {

// What the thread turns.
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

  // Until it is removed. Throws where no thread can be started: then nothing has changed.
  void add(Controlled& controlled);
  // Returns when it is not being turned any more. Not from a turn().
  void remove(const Controlled& controlled);
  // There is something to do that no descriptor shows.
  void wake();
  // At the end of the process; nothing is turned afterwards.
  void stop();
  bool stopped();

 private:
  friend class PerProcess<ControlThread>;
  ControlThread();
  ~ControlThread() = default;
  void run();

  std::mutex mutex_;    // guards the list
  std::mutex turning_;  // held while they are turned
  std::vector<Controlled*> all_;
  int wake_descriptor_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace pith
