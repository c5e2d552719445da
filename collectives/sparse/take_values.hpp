// Takes values out of an accumulator at indices that all ranks know, on the host or by a device's
// queue.
#pragma once

#include <new>

#include "collectives/compressed.hpp"
#include "collectives/patterns.hpp"

namespace pith {

// The result of a kernel; for a device in memory that both sides reach.
template <class Told>
class Answer {
 public:
  explicit Answer(const VectorQueue& queue) {
    if (!queue.on_device()) return;
    memory_ = Scratch(queue.host(), sizeof(Told));
    told_ = new (memory_.bytes().data) Told();
  }
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;
  Told& operator*() const { return *told_; }
  Told* operator->() const { return told_; }

 private:
  Told own_{};
  Scratch memory_;
  Told* told_ = &own_;
};

// Makes a compressor's passes count into a histogram for as long as this object lives.
class CountingInto {
 public:
  CountingInto(Compressor& compressor, MagnitudeHistogram& histogram) : compressor_(compressor) {
    compressor.histogram = &histogram;
  }
  CountingInto(const CountingInto&) = delete;
  CountingInto& operator=(const CountingInto&) = delete;
  ~CountingInto() { compressor_.histogram = nullptr; }

 private:
  Compressor& compressor_;
};

// Adds the gradient in a range and updates the statistics, in parts with a yield after each.
Task<Error> add_in_turns(Call& call, const SparseCall& args, Compressor& compressor, Range range);
// Takes the values at `count` indices, which the caller has written behind the pairs of taken() and
// for whose values there is room. Indices and values become a run. `squares`: the sum of the
// squares.
Task<Error> take_values(Call& call, const SparseCall& args, Compressor& compressor,
                        std::size_t count, double& squares);

}  // namespace pith
