// Momentum correction: the velocity of one vector on one rank, beside its accumulator.
//
// A call makes velocity = momentum velocity + gradient and adds the velocity, in place of the
// gradient, to the accumulator; what it sends leaves both. So elements that wait for their turn
// gather what a dense call with momentum would have sent, and what was sent has no momentum left
// that would count it twice. [Lin et al., "Deep gradient compression", ICLR 2018]
//
// A call that fails has added the velocity, and nothing has left: as if it had elected nothing.
// Dense calls send the accumulator and leave the velocity, as momentum without compression does.
#pragma once

#include <cstddef>

#include "compress/accumulator.hpp"
#include "compress/pair_list.hpp"
#include "compress/scheme.hpp"
#include "core/sparse/momentum_kernel.hpp"

namespace pith {

class Velocity {
 public:
  // Zeros. Throws as Accumulator does.
  Velocity(const Correction& rule, std::size_t count, DeviceVectors* device)
      : rule_(rule), memory_(count, device) {}

  float* data() const { return memory_.data(); }
  const Correction& rule() const { return rule_; }
  Accumulator& memory() { return memory_; }

  // --- a call ---

  // Null: zeros. `left` takes what the call's elements leave behind: pairs to be added to the
  // velocity if the call is undone.
  void begin(const std::byte* gradient, DType type, PairList* left) {
    gradient_ = gradient;
    type_ = type;
    factor_ = 1;
    corrected_ = 0;
    left_ = left;
  }
  // The gradient counts times this factor.
  void clip(float factor) { factor_ = factor; }
  bool is_corrected() const { return corrected_ == memory_.count(); }
  // The arguments that correct the next elements, at most so many.
  MomentumKernel::Args next(std::size_t most);
  // Corrects the rest. `vectors` works on this memory.
  void finish(Compute& vectors) {
    while (!is_corrected()) vectors.run<MomentumKernel>(next(memory_.count()));
  }
  PairList& left() const { return *left_; }

 private:
  Correction rule_;
  Accumulator memory_;
  const std::byte* gradient_ = nullptr;
  DType type_ = DType::f32;
  float factor_ = 1;
  std::size_t corrected_ = 0;  // elements, from the first on
  PairList* left_ = nullptr;
};

}  // namespace pith
