#include "collectives/sparse/thresholds/taking.hpp"

#include <algorithm>

#include "collectives/lists/parcels.hpp"
#include "collectives/sparse/take_values.hpp"
#include "collectives/sparse/thresholds/moved_elements.hpp"
#include "core/clock.hpp"
#include "core/sparse/draw_kernel.hpp"

namespace pith {

namespace {

// On a device few parts, but not so large that the room for all elements of one is a burden.
std::size_t part_elements(const SparseCall& args) {
  constexpr std::size_t on_device = std::size_t{1} << 22;
  return args.device ? on_device : elements_at_once(args);
}

Fence choose(const VectorQueue& queue, Compressor& compressor, Range part, const Choice& choice,
             const MovedElements& moved, PassResult& found) {
  const auto first = static_cast<std::uint32_t>(part.begin);
  float* const accumulator = compressor.accumulator() + part.begin;
  if (choice.key) {
    return queue.run<DrawKernel>({accumulator, part.size, choice.threshold, *choice.key, first,
                                  moved.indices(), moved.values(), &found});
  }
  AccumulateKernel::Args pass{.accumulator = accumulator,
                              .gradient = nullptr,
                              .type = DType::f32,
                              .count = part.size,
                              .fresh = false,
                              .result = &found};
  if (choice.adds) pass = compressor.pass(part.begin, part.size, found);
  return queue.run<SelectKernel>(
      {pass, choice.threshold, first, moved.indices(), moved.values(), part.size});
}

Task<Error> take_part(Call& call, const SparseCall& args, Compressor& compressor, Range part,
                      Choice choice) {
  const Stopwatch watch(compressor.stats.select_seconds);
  const VectorQueue queue = args.queue(call);
  const Answer<PassResult> found(queue);
  MovedElements moved(queue, compressor.accumulator(), part.size);
  co_await queue.until(choose(queue, compressor, part, choice, moved, *found));
  moved.count = found->selected;
  if (choice.adds) {
    compressor.stats.nonfinite += found->nonfinite;
    compressor.stats.squares_all += found->squares;
  }
  Error error = co_await moved.take(compressor);
  co_return error;
}

}  // namespace

Task<Error> take_chosen(Call& call, const SparseCall& args, Compressor& compressor, Choice choice) {
  compressor.stats.threshold = choice.threshold;
  for (Range left{0, compressor.count()}; left.size > 0;) {
    const Range part = take_front(left, part_elements(args));
    Error error = co_await take_part(call, args, compressor, part, choice);
    if (error) co_return error;
    co_await call.turn();
  }
  co_return Error();
}

Task<Error> add_and_count(Call& call, const SparseCall& args, const CompressedTensor& tensor,
                          MagnitudeHistogram& histogram) {
  const CountingInto counting(*tensor.compressor, histogram);
  Error error = co_await add_in_turns(call, args, *tensor.compressor, {0, tensor.count});
  co_return error;
}

HistogramRoom::HistogramRoom(Call& call)
    : memory_(call.host_compute(), sizeof(MagnitudeHistogram)) {
  **this = {};
}

}  // namespace pith
