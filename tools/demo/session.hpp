// The demo's use of Pith: one communicator, its shared memory, and the cost of its calls.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "pith/pith.h"
#include "tools/demo/check.hpp"

namespace pith::demo {

// Floats from pithMemAlloc, which the ranks of a host access directly.
class SharedFloats {
 public:
  explicit SharedFloats(std::size_t count);
  ~SharedFloats() { pithMemFree(data_); }
  SharedFloats(const SharedFloats&) = delete;
  SharedFloats& operator=(const SharedFloats&) = delete;
  std::span<float> span() const { return {static_cast<float*>(data_), count_}; }

 private:
  void* data_ = nullptr;
  std::size_t count_;
};

class Session {
 public:
  Session(const pithUniqueId& id, int ranks, int rank);
  // Aborts the communicator unless close() was called.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int ranks() const { return ranks_; }
  int rank() const { return rank_; }
  pithComm_t comm() const { return comm_; }

  // Overwrites `values` with rank 0's.
  void broadcast(std::span<float> values);

  // Starts replacing `bucket` by its mean over the ranks. The bucket must not be accessed until
  // finish_averages() returns. Buckets must be started in the same order on every rank.
  void start_average(std::span<float> bucket);
  void finish_averages();

  void sum(std::span<double> values);
  bool same_everywhere(std::uint64_t value);

  void close();

  double seconds() const { return seconds_; }  // spent in the calls above
  std::uint64_t bytes() const { return bytes_; }
  std::uint32_t collectives() const { return collectives_; }

 private:
  class Stopwatch;
  void count(std::size_t bytes);

  pithComm_t comm_ = nullptr;
  int ranks_;
  int rank_;
  std::vector<pithRequest_t> in_flight_;
  double seconds_ = 0.0;
  std::uint64_t bytes_ = 0;
  std::uint32_t collectives_ = 0;
};

}  // namespace pith::demo
