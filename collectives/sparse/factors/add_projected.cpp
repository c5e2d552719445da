#include "collectives/sparse/factors/add_projected.hpp"

#include "collectives/sparse/factors/put_product.hpp"
#include "collectives/sparse/take_values.hpp"

namespace pith {

Task<Error> add_projected(Call& call, const SparseCall& args, const VectorQueue& queue,
                          Compressor& compressor, LowRankPart part, const float* right,
                          float* left) {
  const auto [rows, columns, rank] = part.shape;
  for (Range ahead{0, rows}; ahead.size > 0;) {
    const auto [row, some] = take_front(ahead, rows_at_once(queue, columns));
    const Range elements{part.begin + row * columns, some * columns};
    Error error = co_await add_in_turns(call, args, compressor, elements);
    if (error) co_return error;
    queue.run<ProjectKernel>({{some, columns, rank},
                              compressor.accumulator() + elements.begin,
                              right,
                              left + row * rank});
  }
  co_return Error();
}

}  // namespace pith
