#include "collectives/sparse/score_keeper.hpp"

#include <cmath>

#include "core/clock.hpp"

namespace pith {

Task<Error> ScoreKeeper::see_gradients() {
  for (const CompressedTensor& tensor : args_.tensors) {
    Compressor& compressor = *tensor.compressor;
    if (tensor.send) {
      double squares = 0;
      Error error = co_await sum_squares(tensor, squares);
      if (error) co_return error;
      compressor.raw_norm.saw(std::sqrt(squares));
    }
    measure_ += compressor.raw_norm.value();
  }
  co_return Error();
}

Task<Error> ScoreKeeper::sum_squares(const CompressedTensor& tensor, double& squares) {
  for (Range left{0, tensor.count}; left.size > 0;) {
    const Range part = take_front(left, elements_at_once(args_));
    Error error = co_await add_squares(tensor, part, squares);
    if (error) co_return error;
    co_await call_.turn();
  }
  co_return Error();
}

Task<Error> ScoreKeeper::add_squares(const CompressedTensor& tensor, Range part, double& squares) {
  const Stopwatch watch(tensor.compressor->stats.select_seconds);
  const VectorQueue queue = args_.queue(call_);
  const Answer<double> found(queue);
  const std::byte* const values = tensor.send + part.begin * size_of(tensor.type);
  co_await queue.until(queue.run<SquaresKernel>({values, part.size, tensor.type, &*found}));
  squares += *found;
  co_return Error();
}

}  // namespace pith
