// The communicators of a process group: one for collectives and one for messages between two ranks,
// so that a thread may send while another one is inside a collective.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pith/pith.h"

namespace pith_torch {

// One pithComm_t. Its ranks call it from one thread at a time; abort() may come from any thread.
class Communicator {
 public:
  explicit Communicator(pithComm_t comm) : comm_(comm) {}
  // Waits for calls in flight.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Throws if it was aborted.
  pithComm_t get() const;
  // Makes running calls on any thread fail.
  void abort();
  // Leaves it to the end of the process, because calls of it may never end.
  void leak() { comm_.store(nullptr); }
  // Collective over its ranks. Null on ranks with the color PITH_SPLIT_NOCOLOR.
  std::unique_ptr<Communicator> split(int color, int key) const;
  // Collective over its living ranks without `excluded`.
  std::unique_ptr<Communicator> shrink(std::vector<int> excluded, int flags) const;
  int rank() const;
  int size() const;

 private:
  std::atomic<pithComm_t> comm_;
};

// The bytes by which the ranks of a new communicator find each other; of one rank, for all.
std::string make_unique_id();
// timeout_s: of its calls, 0: never; none: that of the settings.
std::unique_ptr<Communicator> join(const std::string& unique_id, int rank, int size,
                                   std::optional<int> timeout_s);

}  // namespace pith_torch
