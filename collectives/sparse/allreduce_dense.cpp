// Dense exchange of compressed calls: accumulators are summed whole, by the algorithm that a dense
// allreduce of float32 would take, and no residual is left.
//
//   accumulators  ->  one vector  ->  allreduce  ->  results, in their type
//
// A rank whose gradient is not finite contributes NaN for every element. All ranks see it in the
// first sum, so no message is needed for it.
// Cost: that of the algorithm, plus two copies if there are several tensors.
#include <cstring>

#include "collectives/algorithm.hpp"
#include "collectives/chooser.hpp"
#include "collectives/sparse/dense_result.hpp"
#include "compress/host_slice.hpp"

namespace pith {

namespace {

// Adds the residual that this rank keeps for its host (hierarchy=host) to its contribution.
void add_slice(Call& call, const SparseCall& args, const CompressedTensor& tensor,
               std::byte* given) {
  const HostSlice* slice = tensor.compressor->slice();
  const float* kept = slice ? slice->before() : nullptr;
  if (!kept) return;
  std::byte* at = given + slice->begin() * sizeof(float);
  const auto* more = reinterpret_cast<const std::byte*>(kept);
  Compute& vectors = args.queue(call).vectors();
  Scratch copied;  // a copy that the device reaches
  if (args.device) {
    copied = Scratch(call.host_compute(), slice->count() * sizeof(float));
    std::memcpy(copied.bytes().data, more, copied.bytes().size);
    more = copied.bytes().data;
  }
  const Fence added =
      vectors.run<ReduceKernel>({at, at, more, slice->count(), DType::f32, Op::sum, false});
  vectors.retire(Lease(), std::move(copied), added);
}

// The call that works on the vectors: the device's if they are on one.
Call& vectors_of(Call& call, const SparseCall& args) { return args.device ? *args.device : call; }

// This rank's contribution as one vector.
const std::byte* joined(Call& call, const SparseCall& args, bool poisoned, std::size_t all,
                        Scratch& memory) {
  const bool has_slice = args.tensors[0].compressor->slice() != nullptr;
  if (args.tensors.size() == 1 && !poisoned && !has_slice) {
    return reinterpret_cast<const std::byte*>(args.tensors[0].compressor->accumulator());
  }
  memory = Scratch(args.queue(call).vectors(), std::max<std::size_t>(all * sizeof(float), 1));
  std::byte* at = memory.bytes().data;
  Call& vectors = vectors_of(call, args);
  if (poisoned) {
    vectors.run<FillNanKernel>({at, DType::f32, all});
    return at;
  }
  for (const CompressedTensor& tensor : args.tensors) {
    const auto* from = reinterpret_cast<const std::byte*>(tensor.compressor->accumulator());
    const std::size_t bytes = tensor.count * sizeof(float);
    if (bytes > 0) vectors.run<CopyKernel>({at, from, bytes});
    add_slice(call, args, tensor, at);
    at += bytes;
  }
  return memory.bytes().data;
}

// The result buffer if the sums can be written to it directly, else null.
std::byte* direct_output(const SparseCall& args) {
  const CompressedTensor& first = args.tensors[0];
  const bool fits = args.tensors.size() == 1 && !first.sparse.count && first.type == DType::f32;
  return fits ? first.recv : nullptr;
}

Task<Error> sum_all(Call& call, const SparseCall& args, CollectiveArgs dense) {
  const std::size_t bytes = dense.count * sizeof(float);
  if (call.size() == 1) {
    if (bytes > 0) call.run<CopyKernel>({dense.recv.data, dense.send.data, bytes});
    co_return Error();
  }
  const auto p = static_cast<std::uint64_t>(call.size());
  args.traffic->sent += 2 * bytes * (p - 1) / p;
  args.traffic->received += 2 * bytes * (p - 1) / p;
  const Algorithm& best = call.chooser().algorithm(Collective::allreduce, bytes);
  co_return co_await best.run(call, dense);
}

// Whether the first sum is NaN. A device's is copied to the host first.
Task<bool> begins_with_nan(Call& call, const SparseCall& args, const std::byte* sums) {
  if (!args.device) co_return is_nan(sums, DType::f32);
  const VectorQueue queue = args.queue(call);
  const Scratch first(queue.host(), sizeof(float));
  co_await queue.until(queue.run<CopyKernel>({first.bytes().data, sums, sizeof(float)}));
  co_return is_nan(first.bytes().data, DType::f32);
}

// Writes one tensor's result. For a sparse result the host looks for the sums that are not zero.
Task<Error> put_sums(Call& call, const SparseCall& args, const CompressedTensor& tensor,
                     const std::byte* sums) {
  constexpr std::size_t at_once = std::size_t{1} << 18;
  ResultWriter writer(call, tensor);
  if (!args.device || !tensor.sparse.count) {
    put_all(call, tensor, writer, {0, tensor.count}, sums, DType::f32);
  } else {
    const VectorQueue queue = args.queue(call);
    const Scratch block(queue.host(), std::min(tensor.count + 1, at_once) * sizeof(float));
    for (std::size_t done = 0; done < tensor.count; done += at_once) {
      const std::size_t count = std::min(at_once, tensor.count - done);
      co_await queue.until(queue.run<CopyKernel>(
          {block.bytes().data, sums + done * sizeof(float), count * sizeof(float)}));
      put_all(call, tensor, writer, {done, count}, block.bytes().data, DType::f32);
    }
  }
  conclude_whole(args, tensor, writer);
  co_return Error();
}

}  // namespace

Task<Error> allreduce_dense(Call& call, SparseCall args) {
  const VectorQueue queue = args.queue(call);
  co_await queue.until(start_adding(call, args));
  const bool poisoned = finish_adding(args);
  const std::size_t all = elements_of(args.tensors);
  const MemoryKind kind = queue.vectors().kind();
  Scratch given;
  Scratch taken;
  CollectiveArgs dense;
  dense.count = all;
  dense.tuning = *args.tuning;
  const std::byte* send = joined(call, args, poisoned, all, given);
  dense.send = {const_cast<std::byte*>(send), all * sizeof(float), kind};
  std::byte* recv = direct_output(args);
  if (!recv) {
    taken = Scratch(queue.vectors(), std::max<std::size_t>(all * sizeof(float), 1));
    recv = taken.bytes().data;
  }
  dense.recv = {recv, all * sizeof(float), kind};
  // Peers that reach a device's memory read it as soon as they have the handle: await its kernels
  // first.
  if (args.device) co_await queue.until(queue.vectors().run<CopyKernel>({nullptr, nullptr, 0}));
  Error error = co_await sum_all(vectors_of(call, args), args, dense);
  if (error) co_return error;
  for (const CompressedTensor& tensor : args.tensors) {
    const Spec& spec = args.spec();
    if (spec.scheme == &spec.stated() && spec.scheme->exchange == "dense") continue;  // as ever
    tensor.compressor->stats.bypassed = true;
    tensor.compressor->stats.algorithm = "dense";
  }
  bool nan = false;
  if (all > 0) nan = co_await begins_with_nan(call, args, recv);
  if (nan) {
    deliver_nan(call, args);
    co_return error;
  }
  for (const CompressedTensor& tensor : args.tensors) {
    error = co_await put_sums(call, args, tensor, recv);
    if (error) co_return error;
    recv += tensor.count * sizeof(float);
  }
  co_return error;
}

}  // namespace pith
