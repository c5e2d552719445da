// Values at indices that all ranks know, out of the accumulator: with a device's queue in between
// where it lies on one.
#pragma once

#include <new>

#include "collectives/compressed.hpp"
#include "collectives/patterns.hpp"

namespace pith {

// What a kernel tells: on a device it writes to memory that both sides reach.
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

// Adds the gradient in a range and counts what it finds, in parts with a turn behind each. Awaits
// to Error.
Task<Error> add_in_turns(Call& call, const SparseCall& args, Compressor& compressor, Range range);
// The indices are those behind the pairs of taken(), for which there is room; they become a run,
// with their values. `squares`: of these.
Task<Error> take_values(Call& call, const SparseCall& args, Compressor& compressor,
                        std::size_t count, double& squares);

}  // namespace pith
