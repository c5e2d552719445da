// A communicator as Python sees it.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "errors.hpp"
#include "nanobind/nanobind.h"
#include "pith/pith.h"

namespace pith::python {

namespace nb = nanobind;

class Communicator {
 public:
  // Takes the handle over.
  explicit Communicator(pithComm_t handle);
  // Without finalize() before, the communicator is left in order all the same.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool has_ended() const { return ended_.load(std::memory_order_acquire); }
  // Raises if the communicator has ended.
  pithComm_t handle() const;
  // Raises if the outcome is a failure, and tells the ranks that are gone.
  void check(const Outcome& outcome) const;

  // Waits for the calls in flight and leaves. Does nothing the second time.
  void finalize();
  // Ends running calls on all ranks, and the communicator. Any thread.
  void abort();
  nb::tuple failed() const;

  // One thread at a time drives a communicator. Raises if another one does.
  class Driving {
   public:
    explicit Driving(Communicator& comm);
    ~Driving();
    Driving(const Driving&) = delete;
    Driving& operator=(const Driving&) = delete;

   private:
    Communicator& comm_;
  };

 private:
  pithComm_t handle_;
  int rank_ = 0;
  int size_ = 0;
  std::atomic<bool> ended_{false};
  std::atomic<std::thread::id> driver_{};
};

void add_communicator(nb::module_& module);

}  // namespace pith::python
