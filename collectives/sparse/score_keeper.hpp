// This rank's score for an election by variance, computed while the call goes on.
#pragma once

#include "collectives/lists/parcels.hpp"
#include "collectives/sparse/take_values.hpp"
#include "compress/election.hpp"

namespace pith {

class ScoreKeeper {
 public:
  ScoreKeeper(Call& call, const SparseCall& args) : call_(call), args_(args) {}
  ScoreKeeper(const ScoreKeeper&) = delete;
  ScoreKeeper& operator=(const ScoreKeeper&) = delete;
  ~ScoreKeeper() { count_into(nullptr); }
  FrameArena& frame_arena() const { return call_.frame_arena(); }

  // score=raw: from the gradients alone. A gradient that was added to the accumulator in place
  // counts with the residual there; a missing one leaves the mean as it was.
  Task<Error> see_gradients();

  // score=compressed, from this rank's selection.
  void see_selected() {
    for (const CompressedTensor& tensor : args_.tensors) {
      PairList& taken = tensor.compressor->taken();
      double squares = 0;
      call_.run<SquaresKernel>({taken.values(), taken.count(), taken.type(), &squares});
      measure_ += squares;
    }
  }

  // score=compressed, without selecting: from a histogram of all passes from now on.
  void count_passes() {
    memory_ = Scratch(call_.host_compute(), sizeof(MagnitudeHistogram));
    clear();
    count_into(&histogram());
  }
  // To be called after each pass, in order.
  void see_pass(const Piece& piece) {
    const CompressedTensor& tensor = args_.tensors[piece.tensor];
    if (!memory_.bytes().data || piece.range.begin + piece.range.size < tensor.count) return;
    measure_ += largest_squares(histogram(), elected_of(args_.spec().density, tensor.count));
    clear();
  }

  double score() const { return score_of(measure_); }

 private:
  // In parts, with a yield after each.
  Task<Error> sum_squares(const CompressedTensor& tensor, double& squares);
  Task<Error> add_squares(const CompressedTensor& tensor, Range part, double& squares);
  MagnitudeHistogram& histogram() const {
    return *reinterpret_cast<MagnitudeHistogram*>(memory_.bytes().data);
  }
  void clear() { call_.run<ZeroKernel>({memory_.bytes().data, memory_.bytes().size}); }
  void count_into(MagnitudeHistogram* histogram) {
    for (const CompressedTensor& tensor : args_.tensors) tensor.compressor->histogram = histogram;
  }

  Call& call_;
  const SparseCall& args_;
  double measure_ = 0;
  Scratch memory_;
};

}  // namespace pith
