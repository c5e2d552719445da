// What an election by variance needs of one rank's gradients: its score, as it comes about while
// the call goes on.
#pragma once

#include <algorithm>
#include <cmath>

#include "collectives/parcels.hpp"
#include "collectives/take_values.hpp"
#include "compress/election.hpp"
#include "core/clock.hpp"

namespace pith {

class ScoreKeeper {
 public:
  ScoreKeeper(Call& call, const SparseCall& args) : call_(call), args_(args) {}
  ScoreKeeper(const ScoreKeeper&) = delete;
  ScoreKeeper& operator=(const ScoreKeeper&) = delete;
  ~ScoreKeeper() { count_into(nullptr); }
  FrameArena& frame_arena() const { return call_.frame_arena(); }

  // score=raw: of the gradients alone. One that was added to the accumulator in place counts with
  // the residual it was added to, and one that is not there leaves the mean as it was.
  Task<Error> see_gradients() {
    for (const CompressedTensor& tensor : args_.tensors) {
      Compressor& compressor = *tensor.compressor;
      if (tensor.send) {
        double squares = 0;
        Task<Error> summing = sum_squares(tensor, squares);
        Error error = co_await std::move(summing);
        if (error) co_return error;
        compressor.raw_norm.saw(std::sqrt(squares));
      }
      measure_ += compressor.raw_norm.value();
    }
    co_return Error();
  }

  // score=compressed, of what this rank has selected.
  void see_selected() {
    for (const CompressedTensor& tensor : args_.tensors) {
      PairList& taken = tensor.compressor->taken();
      double squares = 0;
      call_.run<SquaresKernel>({taken.values(), taken.count(), taken.type(), &squares});
      measure_ += squares;
    }
  }

  // score=compressed, without selecting: from a histogram of all that is passed from now on.
  void count_passes() {
    memory_ = Scratch(call_.host_compute(), sizeof(MagnitudeHistogram));
    clear();
    count_into(&histogram());
  }
  // After each pass, in order.
  void see_pass(const Piece& piece) {
    const CompressedTensor& tensor = args_.tensors[piece.tensor];
    if (!memory_.bytes().data || piece.range.begin + piece.range.size < tensor.count) return;
    measure_ += largest_squares(histogram(), elected_of(args_.spec().density, tensor.count));
    clear();
  }

  float score() const { return score_of(measure_); }

 private:
  // In parts, with a turn behind each.
  Task<Error> sum_squares(const CompressedTensor& tensor, double& squares) {
    for (Range left{0, tensor.count}; left.size > 0;) {
      const Range part{left.begin, std::min(left.size, elements_at_once(args_))};
      Task<Error> adding = add_squares(tensor, part, squares);
      Error error = co_await std::move(adding);
      if (error) co_return error;
      left = {left.begin + part.size, left.size - part.size};
      co_await call_.turn();
    }
    co_return Error();
  }
  Task<Error> add_squares(const CompressedTensor& tensor, Range part, double& squares) {
    const Stopwatch watch(tensor.compressor->stats.select_seconds);
    const VectorQueue queue = args_.queue(call_);
    const Answer<double> found(queue);
    const std::byte* const values = tensor.send + part.begin * size_of(tensor.type);
    co_await queue.until(queue.run<SquaresKernel>({values, part.size, tensor.type, &*found}));
    squares += *found;
    co_return Error();
  }
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
