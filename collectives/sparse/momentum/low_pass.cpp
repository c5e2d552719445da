#include "collectives/sparse/momentum/low_pass.hpp"

#include <cstring>

#include "collectives/lists/parcels.hpp"
#include "core/clock.hpp"

namespace pith {

namespace {

// Puts a part of the pairs of one run of taken() back.
Task<Error> return_part(Call& call, const SparseCall& args, Compressor& compressor, std::size_t run,
                        float part) {
  const VectorQueue queue = args.queue(call);
  const SparseList sent = compressor.taken().run(run);
  if (sent.count == 0) co_return Error();
  const std::size_t index_bytes = sent.count * sizeof(std::uint32_t);
  const Scratch copied(queue.host(), index_bytes + sent.count * sizeof(float));
  std::byte* const indices = copied.bytes().data;
  std::byte* const values = indices + index_bytes;
  std::memcpy(indices, sent.indices, index_bytes);
  queue.host().run<ConvertKernel>(
      {values, DType::f32, sent.values, compressor.taken().type(), sent.count, 1 / part});
  co_await queue.until(queue.run<ReturnKernel>({compressor.accumulator(),
                                                reinterpret_cast<const std::uint32_t*>(indices),
                                                values, sent.count, DType::f32}));
  co_return Error();
}

// Takes a part of the gradients out. Those that are not finite were not added.
Task<Error> remove_part(Call& call, const SparseCall& args, Compressor& compressor, float part) {
  const VectorQueue queue = args.queue(call);
  for (Range left{0, compressor.count()}; left.size > 0;) {
    const Stopwatch watch(compressor.stats.select_seconds);
    const Range now = take_front(left, elements_at_once(args));
    float* const gradient = compressor.velocity->data() + now.begin;
    const auto* removed = reinterpret_cast<const std::byte*>(gradient);
    queue.run<MomentumKernel>({gradient, nullptr, DType::f32, now.size, -part, 0});
    co_await queue.until(queue.run<MomentumKernel>(
        {compressor.accumulator() + now.begin, removed, DType::f32, now.size, 1, 1}));
    co_await call.turn();
  }
  co_return Error();
}

}  // namespace

Task<Error> filter_residuals(Call& call, const SparseCall& args) {
  const float part = 1 - correction_of(args.spec()).low_pass;
  for (const CompressedTensor& tensor : args.tensors) {
    Compressor& compressor = *tensor.compressor;
    if (!compressor.keep_part(part)) continue;
    for (std::size_t run = 0; run < compressor.taken().runs(); ++run) {
      Error error = co_await return_part(call, args, compressor, run, part);
      if (error) co_return error;
    }
    Error error = co_await remove_part(call, args, compressor, part);
    if (error) co_return error;
  }
  co_return Error();
}

}  // namespace pith
