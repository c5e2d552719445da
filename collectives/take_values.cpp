#include "collectives/take_values.hpp"

#include <algorithm>
#include <cstring>

#include "collectives/parcels.hpp"
#include "core/clock.hpp"

namespace pith {

Task<Error> add_gradient(Call& call, const SparseCall& args, Compressor& compressor,
                         std::size_t begin, std::size_t count) {
  const Stopwatch watch(compressor.stats.select_seconds);
  const VectorQueue queue = args.queue(call);
  const Answer<PassResult> found(queue);
  co_await queue.until(queue.run<AccumulateKernel>(compressor.pass(begin, count, *found)));
  compressor.stats.nonfinite += found->nonfinite;
  compressor.stats.squares_all += found->squares;
  co_return Error();
}

Task<Error> add_in_turns(Call& call, const SparseCall& args, Compressor& compressor, Range range) {
  while (range.size > 0) {
    const std::size_t count = std::min(range.size, elements_at_once(args));
    Task<Error> adding = add_gradient(call, args, compressor, range.begin, count);
    Error error = co_await std::move(adding);
    if (error) co_return error;
    range = {range.begin + count, range.size - count};
    co_await call.turn();
  }
  co_return Error();
}

Task<Error> take_values(Call& call, const SparseCall& args, Compressor& compressor,
                        std::size_t count, double& squares) {
  const Stopwatch watch(compressor.stats.select_seconds);
  const VectorQueue queue = args.queue(call);
  PairList& taken = compressor.taken();
  const std::size_t at = taken.count();
  const std::size_t index_bytes = count * sizeof(std::uint32_t);
  const std::size_t value_bytes = count * size_of(taken.type());
  const Answer<double> found(queue);
  if (!queue.on_device()) {
    queue.run<TakeKernel>({compressor.accumulator(), taken.indices(at), count, taken.values(at),
                           taken.type(), &*found});
  } else if (count > 0) {
    const Scratch copied(queue.host(), index_bytes + value_bytes);
    std::byte* indices = copied.bytes().data;
    std::byte* values = indices + index_bytes;
    std::memcpy(indices, taken.indices(at), index_bytes);
    co_await queue.until(queue.run<TakeKernel>({compressor.accumulator(),
                                                reinterpret_cast<const std::uint32_t*>(indices),
                                                count, values, taken.type(), &*found}));
    std::memcpy(taken.values(at), values, value_bytes);
  }
  taken.end_run(count);
  squares = *found;
  co_return Error();
}

}  // namespace pith
