// What a rank keeps for its host, under hierarchy=host: the residual of its slice of the vector.
//
// It lies apart from the compressor's own accumulator, which holds what this rank has not given to
// the owners of slices, and that is nothing between calls. So a call can be undone exactly on every
// rank by itself: what was given comes back, and the slice's residual is that before the call.
//
// `inner` is the compressor of the slice, for the scheme between hosts. Its scheme's state is the
// outer one's, which lends it for a call. Its memory changes with every call, for the residual
// before it is kept.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "compress/compressor.hpp"

namespace pith {

class HostSlice {
 public:
  HostSlice(const Spec& spec, std::size_t begin, std::size_t count);

  std::size_t begin() const { return begin_; }
  std::size_t count() const { return count_; }
  Compressor& inner() { return inner_; }
  // The pairs that came of a call, by index of the slice.
  PairList& sums() { return sums_; }

  // Between calls. Null: zero.
  const float* residual() const {
    return inner_.residual_is_zero() ? nullptr : inner_.accumulator();
  }
  // To float32 of the whole vector, at any address.
  void add_residual(std::byte* out) const;
  // The squared norm of it and `rest`, of the whole vector; null: zeros.
  double residual_squares(Compute& host, const float* rest, std::size_t count) const;

  // --- a call ---

  // The residual is kept, and what `inner` has counts as zero.
  void open(std::uint32_t call);
  // What it was when the call began; null: zero.
  const float* before() const { return kept_[0].is_zero ? nullptr : kept_[0].memory.data(); }
  // The scheme has ended well: it counts in the statistics, unless nothing is delivered after all.
  void tell() { tells_ = true; }
  void end(CompressorStats& stats);
  // Nothing was delivered. Idempotent.
  void restore();
  // Of the last two calls, see Compressor::return_after().
  void return_after(std::uint32_t completed);
  void forget();
  void scale(Compute& host, float factor);

 private:
  struct Kept {
    std::uint32_t call = 0;
    bool delivered = false;
    bool is_zero = true;
    Accumulator memory;
  };

  std::size_t begin_;
  std::size_t count_;
  Compressor inner_;
  std::array<Kept, 2> kept_;  // before this call or the last one, and before the one before
  bool open_ = false;
  bool tells_ = false;
  PairList sums_;
};

}  // namespace pith
