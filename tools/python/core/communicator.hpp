// A communicator as Python sees it.
#pragma once

#include <atomic>
#include <memory>
#include <thread>

#include "errors.hpp"
#include "nanobind/nanobind.h"
#include "pith/pith.h"
#include "process.hpp"

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
  // Raises if the communicator has ended, or is that of the parent of this process.
  pithComm_t handle() const;
  // Raises if the outcome is a failure, and tells the ranks that are gone.
  void check(const Outcome& outcome) const;
  nb::tuple failed_after(const Outcome& outcome) const;

  // Waits for the calls in flight and leaves. Does nothing the second time.
  void finalize();
  // Ends running calls on all ranks, and the communicator. Any thread, also in the handler of a
  // signal: then the running call of this thread ends first.
  void abort();
  nb::tuple failed() const;

 private:
  friend class Driving;

  pithComm_t handle_;
  int rank_ = 0;
  int size_ = 0;
  const unsigned process_ = fork_generation();
  std::atomic<bool> ended_{false};
  std::atomic<bool> to_be_aborted_{false};
  std::atomic<std::thread::id> driver_{};
};

// While it lives, this thread drives the communicator. Raises if another one does: one thread at a
// time may.
class Driving {
 public:
  explicit Driving(Communicator& comm);
  ~Driving();
  Driving(Driving&& other) noexcept : comm_(std::exchange(other.comm_, nullptr)) {}
  Driving& operator=(Driving&&) = delete;

 private:
  Communicator* comm_;
};

using CommunicatorType = nb::class_<Communicator>;
// The methods about a communicator's life, and the functions that make one.
void add_communicator(nb::module_& module, CommunicatorType& type);

}  // namespace pith::python
