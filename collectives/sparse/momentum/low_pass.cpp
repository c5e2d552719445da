#include "collectives/sparse/momentum/low_pass.hpp"

#include "collectives/lists/parcels.hpp"
#include "core/clock.hpp"

namespace pith {

Task<Error> hold_residuals_back(Call& call, const SparseCall& args) {
  const VectorQueue queue = args.queue(call);
  for (const CompressedTensor& tensor : args.tensors) {
    Compressor& compressor = *tensor.compressor;
    HeldBack& held = *compressor.held_back;
    while (!held.is_whole() && !compressor.residual_is_zero()) {
      const Stopwatch watch(compressor.stats.select_seconds);
      co_await queue.until(
          held.hold(queue.vectors(), compressor.accumulator(), elements_at_once(args)));
      co_await call.turn();
    }
  }
  co_return Error();
}

Task<Error> release_residuals(Call& call, const SparseCall& args) {
  const VectorQueue queue = args.queue(call);
  for (const CompressedTensor& tensor : args.tensors) {
    Compressor& compressor = *tensor.compressor;
    HeldBack& held = *compressor.held_back;
    while (!held.is_released() && !compressor.takes_all()) {
      const Stopwatch watch(compressor.stats.select_seconds);
      co_await queue.until(
          held.release(queue.vectors(), compressor.accumulator(), elements_at_once(args)));
      co_await call.turn();
    }
  }
  co_return Error();
}

}  // namespace pith
