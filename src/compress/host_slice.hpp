// What a rank keeps for its host with hierarchy=host: the residual of its slice of the vector.
//
// It is separate from the compressor's own accumulator, which holds what this rank has not given to
// the owners of slices; between calls that is nothing. So each rank can undo a call exactly and by
// itself: what was given returns, and the slice's residual is that before the call.
//
// `inner` is the slice's compressor, for the scheme between hosts. Its scheme state is the outer
// compressor's, lent for a call. Its memory changes with every call, since the residual before the
// call is kept.
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
  // The pairs that a call returned, by index in the slice.
  PairList& sums() { return sums_; }

  // Between calls. Null: zero.
  const float* residual() const {
    return inner_.residual_is_zero() ? nullptr : inner_.accumulator();
  }
  // Adds to float32 of the whole vector, at any address.
  void add_residual(std::byte* out) const;
  // The squared norm of the slice's residual plus `rest`, a whole vector; null: zeros.
  double residual_squares(Compute& host, const float* rest, std::size_t count) const;

  // --- a call ---

  // Keeps the residual; `inner` then counts as zero.
  void open(std::uint32_t call);
  // The residual when the call began; null: zero.
  const float* before() const { return kept_[0].is_zero ? nullptr : kept_[0].memory.data(); }
  // The scheme has succeeded: end() adds it to the statistics, unless nothing was delivered.
  void tell() { tells_ = true; }
  void end(CompressorStats& stats);
  // Nothing was delivered. Idempotent.
  void restore();
  // For the last two calls, see Compressor::return_after().
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
  std::array<Kept, 2> kept_;  // before the current or last call, and before the one before
  bool open_ = false;
  bool tells_ = false;
  PairList sums_;
};

}  // namespace pith
