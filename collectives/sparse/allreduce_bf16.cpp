// Dense allreduce of values rounded to bfloat16: half the bytes of float32. Values are summed in
// float32, in rank order, and rounded once; no residual is kept.
//
//   parcel:  round > sum > write, one parcel after the other
//
// A rank whose gradient is not finite contributes NaN for every element, as in allreduce_dense.
// Cost: bf16_cost.hpp.
#include <optional>

#include "collectives/lists/parcels.hpp"
#include "collectives/lists/value_sum.hpp"
#include "collectives/sparse/bf16_cost.hpp"
#include "collectives/sparse/dense_result.hpp"

namespace pith {

namespace {

constexpr std::size_t parcel_size = Bf16Shape::parcel;

// Rounds the elements of the parcel that `pieces` is at. `n`: their number.
Fence round_parcel(const VectorQueue& queue, const SparseCall& args, Pieces pieces,
                   std::byte* values, std::size_t& n) {
  Fence last;
  n = 0;
  while (!pieces.done()) {
    const Piece piece = pieces.next();
    const float* from = args.tensors[piece.tensor].compressor->accumulator() + piece.range.begin;
    last = queue.run<ConvertKernel>({values + n * size_of(DType::bf16), DType::bf16,
                                     reinterpret_cast<const std::byte*>(from), DType::f32,
                                     piece.range.size, 1});
    n += piece.range.size;
    if (piece.ends_parcel) break;
  }
  return last;
}

// Writes the results, tensor by tensor.
class Results {
 public:
  Results(Call& call, const SparseCall& args) : call_(call), args_(args) {
    writer_.emplace(call, args.tensors[0]);
  }
  // Moves `pieces` past the parcel.
  void put_parcel(Pieces& pieces, const std::byte* values) {
    while (!pieces.done()) {
      const Piece piece = pieces.next();
      while (tensor_ < piece.tensor) conclude();
      put_all(call_, args_.tensors[tensor_], *writer_, piece.range, values, DType::bf16);
      values += piece.range.size * size_of(DType::bf16);
      if (piece.ends_parcel) return;
    }
  }
  void finish() {
    while (tensor_ < args_.tensors.size()) conclude();
  }

 private:
  void conclude() {
    conclude_whole(args_, args_.tensors[tensor_], *writer_);
    ++tensor_;
    if (tensor_ < args_.tensors.size()) writer_.emplace(call_, args_.tensors[tensor_]);
  }

  Call& call_;
  const SparseCall& args_;
  std::size_t tensor_ = 0;
  std::optional<ResultWriter> writer_;
};

// `values` is reused: on a device the queue writes a parcel's results before it rounds the next
// parcel.
Task<Error> sum_parcels(Call& call, const SparseCall& args, bool poisoned, std::byte* values) {
  const VectorQueue queue = args.queue(call);
  Results results(call, args);
  std::uint32_t step = 0;
  for (Pieces pieces(args.tensors, parcel_size); !pieces.done(); ++step) {
    ValuePart part;
    co_await queue.until(round_parcel(queue, args, pieces, values, part.count));
    if (poisoned) call.run<FillNanKernel>({values, DType::bf16, part.count});
    ValueSum sum;
    sum.values = values;
    sum.count = part.count;
    sum.type = DType::bf16;
    sum.parts = std::span(&part, 1);
    sum.step = step;
    Error error = co_await sum_values(call, sum, *args.traffic);
    if (error) co_return error;
    if (step == 0 && is_nan(values, DType::bf16)) {
      deliver_nan(call, args);
      co_return error;
    }
    results.put_parcel(pieces, values);
  }
  results.finish();
  co_return Error();
}

}  // namespace

Task<Error> allreduce_bf16(Call& call, SparseCall args) {
  const VectorQueue queue = args.queue(call);
  co_await queue.until(start_adding(call, args));
  const bool poisoned = finish_adding(args);
  const Scratch memory(call.host_compute(), parcel_size * size_of(DType::bf16));
  Error error = co_await sum_parcels(call, args, poisoned, memory.bytes().data);
  // A device may still read the memory.
  if (queue.on_device()) co_await queue.until(queue.run<CopyKernel>({nullptr, nullptr, 0}));
  co_return error;
}

}  // namespace pith
