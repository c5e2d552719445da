#include "collectives/sparse/take_values.hpp"

#include <algorithm>
#include <cstring>

#include "collectives/lists/parcels.hpp"
#include "core/clock.hpp"

namespace pith {

namespace {

// `added`: the fence to await on the host; a device is awaited here.
Task<Error> add_part(Call& call, const SparseCall& args, Compressor& compressor, Range range,
                     Fence& added) {
  const Stopwatch watch(compressor.stats.select_seconds);
  const VectorQueue queue = args.queue(call);
  const Answer<PassResult> found(queue);
  added = queue.run<AccumulateKernel>(compressor.pass(range.begin, range.size, *found));
  co_await queue.until(added);
  if (queue.on_device()) added = {};
  compressor.stats.nonfinite += found->nonfinite;
  compressor.stats.squares_all += found->squares;
  co_return Error();
}

}  // namespace

Task<Error> add_in_turns(Call& call, const SparseCall& args, Compressor& compressor, Range range) {
  while (range.size > 0) {
    const Range part = take_front(range, elements_at_once(args));
    Fence added;
    Error error = co_await add_part(call, args, compressor, part, added);
    if (error) co_return error;
    co_await call.until(added);
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
