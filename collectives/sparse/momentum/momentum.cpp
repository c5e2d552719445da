#include "collectives/sparse/momentum/momentum.hpp"

#include <cmath>
#include <cstring>

#include "collectives/lists/parcels.hpp"
#include "collectives/sparse/take_values.hpp"
#include "core/clock.hpp"

namespace pith {

namespace {

Task<Error> add_squares(Call& call, const SparseCall& args, const CompressedTensor& tensor,
                        double& squares) {
  const VectorQueue queue = args.queue(call);
  const Answer<double> found(queue);
  for (Range left{0, tensor.count}; left.size > 0;) {
    const Stopwatch watch(tensor.compressor->stats.select_seconds);
    const Range part = take_front(left, elements_at_once(args));
    const std::byte* const values = tensor.send + part.begin * size_of(tensor.type);
    co_await queue.until(queue.run<SquaresKernel>({values, part.size, tensor.type, &*found}));
    squares += *found;
    co_await call.turn();
  }
  co_return Error();
}

// A norm that is not finite limits nothing: the gradients are refused, or what is not finite is.
float factor_of(double limit, int ranks, double squares) {
  const double own = limit / std::sqrt(double(ranks));
  const double norm = std::sqrt(squares);
  return std::isfinite(norm) && norm > own ? static_cast<float>(own / norm) : 1.0f;
}

Task<Error> clip(Call& call, const SparseCall& args, double limit) {
  double squares = 0;
  for (const CompressedTensor& tensor : args.tensors) {
    if (!tensor.send) continue;
    Error error = co_await add_squares(call, args, tensor, squares);
    if (error) co_return error;
  }
  const float factor = factor_of(limit, call.size(), squares);
  for (const CompressedTensor& tensor : args.tensors) tensor.compressor->velocity->clip(factor);
  co_return Error();
}

// The elements of one run of taken().
Task<Error> leave_run(Call& call, const SparseCall& args, Compressor& compressor, std::size_t run) {
  const VectorQueue queue = args.queue(call);
  const SparseList sent = compressor.taken().run(run);
  if (sent.count == 0) co_return Error();
  const std::size_t index_bytes = sent.count * sizeof(std::uint32_t);
  const std::size_t value_bytes = sent.count * sizeof(float);
  PairList& left = compressor.velocity->left();
  left.reserve(sent.count);
  std::memcpy(left.indices(left.count()), sent.indices, index_bytes);
  const Answer<double> squares(queue);
  std::byte* values = left.values(left.count());
  const std::uint32_t* indices = sent.indices;
  Scratch copied;
  if (queue.on_device()) {
    copied = Scratch(queue.host(), index_bytes + value_bytes);
    std::memcpy(copied.bytes().data, sent.indices, index_bytes);
    indices = reinterpret_cast<const std::uint32_t*>(copied.bytes().data);
    values = copied.bytes().data + index_bytes;
  }
  co_await queue.until(queue.run<TakeKernel>(
      {compressor.velocity->data(), indices, sent.count, values, DType::f32, &*squares}));
  if (queue.on_device()) std::memcpy(left.values(left.count()), values, value_bytes);
  left.end_run(sent.count);
  co_return Error();
}

}  // namespace

Task<Error> correct_momentum(Call& call, const SparseCall& args) {
  const Correction rule = args.spec().scheme->correction(args.spec());
  if (rule.clip > 0) {
    Task<Error> clipping = clip(call, args, double(rule.clip));
    Error error = co_await std::move(clipping);
    if (error) co_return error;
  }
  for (const CompressedTensor& tensor : args.tensors) {
    Velocity& velocity = *tensor.compressor->velocity;
    while (!velocity.is_corrected()) {
      const Stopwatch watch(tensor.compressor->stats.select_seconds);
      const VectorQueue queue = args.queue(call);
      co_await queue.until(queue.run<MomentumKernel>(velocity.next(elements_at_once(args))));
      co_await call.turn();
    }
  }
  co_return Error();
}

Task<Error> leave_velocities(Call& call, const SparseCall& args) {
  for (const CompressedTensor& tensor : args.tensors) {
    Compressor& compressor = *tensor.compressor;
    for (std::size_t run = 0; run < compressor.taken().runs(); ++run) {
      Error error = co_await leave_run(call, args, compressor, run);
      if (error) co_return error;
    }
  }
  co_return Error();
}

}  // namespace pith
