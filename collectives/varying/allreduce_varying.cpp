// Dense allreduce of values coded to a length that depends on them (Scheme::varying): each rank
// sends every other one its values of that rank's segment, the owner adds them up, and sends the
// sum to all.
//
//   strand 0:  add > encode, scatter > decode, add, encode > gather > decode   parcels 0, 4, 8, ...
//   strand 1:     add > encode, scatter > decode, add, encode > gather > decode       1, 5, 9, ...
//   ...
//
// An owner's values enter the sum as they are, in rank order, in float32. So `lossless` is the sum
// in rank order, bit for bit: ((x0 + x1) + x2) + ..., as a plain loop over the ranks has it. With
// `bounded` P - 1 values and the sum are coded, each with an error of at most its bound. A rank
// alone codes nothing.
//
// A rank that finds its gradient not finite says so in the head of what it sends from that parcel
// on; owners pass that on, and all ranks deliver NaN in the end. A sum beyond float32 is infinite,
// and is gone. Vectors on a device are coded on the host.
// Cost: varying_cost.hpp. Wins where a link takes longer for the bytes saved than a core for
// coding.
#include <algorithm>
#include <array>

#include "collectives/sparse/coded_cost.hpp"
#include "collectives/sparse/dense_result.hpp"
#include "collectives/sparse/take_values.hpp"
#include "collectives/strands.hpp"
#include "collectives/varying/varying_sum.hpp"

namespace pith {

namespace {

constexpr std::size_t most_strands = CodedShape::strands;

void put(Call& call, const SparseCall& args, WholeResults& results, const VaryingParcel& parcel) {
  parcel.for_each_slice({0, parcel.count()}, [&](const VaryingSlice& slice) {
    const CompressedTensor& tensor = args.tensors[slice.tensor];
    if (tensor.sparse.count) results.conclude_before(slice.tensor);
    const auto* const sums = reinterpret_cast<const std::byte*>(parcel.sums(slice));
    put_all(call, tensor, results.writer(), slice.range, sums, DType::f32);
  });
}

struct VaryingCall {
  VaryingCall(Call& call, const SparseCall& sparse)
      : args(sparse), coding(sparse.spec().scheme->varying(sparse.spec())), results(call, args) {
    for (const CompressedTensor& tensor : args.tensors) all += tensor.count;
    parcel = CodedShape::parcel(all);
    strands =
        any_pairs(args) ? 1 : std::clamp<std::size_t>(chunks_in(all, parcel), 1, most_strands);
  }
  VaryingCall(const VaryingCall&) = delete;
  VaryingCall& operator=(const VaryingCall&) = delete;

  Pieces pieces() const { return {args.tensors, parcel}; }
  // Of a parcel's elements.
  std::size_t float_bytes() const {
    return std::max<std::size_t>(std::min(parcel, all), 1) * sizeof(float);
  }

  const SparseCall& args;
  const VaryingCoding coding;
  std::size_t all = 0;      // elements
  std::size_t parcel = 0;   // elements
  std::size_t strands = 1;  // of this rank: it depends on its results
  bool nan = false;         // some rank's gradient is not finite
  WholeResults results;
};

// Adds gradients, and copies the sums to the host if they are on a device.
Task<Error> add_parcel(Call& call, const VaryingCall& varying, Pieces pieces, float* copies) {
  const VectorQueue queue = varying.args.queue(call);
  Fence copied;
  for (bool more = true; more;) {
    const Piece piece = pieces.next();
    Compressor& compressor = *varying.args.tensors[piece.tensor].compressor;
    Error error = co_await add_in_turns(call, varying.args, compressor, piece.range);
    if (error) co_return error;
    if (copies) {
      const float* const from = compressor.accumulator() + piece.range.begin;
      copied = queue.run<CopyKernel>({reinterpret_cast<std::byte*>(copies),
                                      reinterpret_cast<const std::byte*>(from),
                                      piece.range.size * sizeof(float)});
      copies += piece.range.size;
    }
    more = !piece.ends_parcel;
  }
  co_await queue.until(copied);
  co_return Error();
}

// After the parcel nothing reads its memory.
Task<Error> settle_parcel(Call& call, const VaryingCall& varying, Pieces pieces,
                          const float* copies) {
  const VectorQueue queue = varying.args.queue(call);
  if (!queue.on_device()) co_return Error();
  Fence last = queue.run<CopyKernel>({nullptr, nullptr, 0});
  if (varying.coding.keeps_rest) {
    for_each_piece(pieces, [&](const Piece& piece) {
      Compressor& compressor = *varying.args.tensors[piece.tensor].compressor;
      float* const change = compressor.changes() + piece.range.begin;
      last = queue.run<CopyKernel>({reinterpret_cast<std::byte*>(change),
                                    reinterpret_cast<const std::byte*>(copies),
                                    piece.range.size * sizeof(float)});
      copies += piece.range.size;
    });
  }
  co_await queue.until(last);
  co_return Error();
}

Task<Error> sum_parcel(Call& call, VaryingCall& varying, Pieces pieces, std::uint32_t step,
                       float* sums, float* copies) {
  Error error = co_await add_parcel(call, varying, pieces, copies);
  if (error) co_return error;
  const bool is_bad = found_nonfinite(varying.args) && !varying.args.spec().drops_nonfinite;
  std::uint32_t flags = is_bad ? VaryingHead::nonfinite : 0;
  const VaryingParcel parcel(varying.args, varying.coding, pieces, sums, copies);
  error = co_await sum_varying(call, parcel, step, flags);
  if (error) co_return error;
  varying.nan = varying.nan || flags != 0;
  if (!varying.nan) put(call, varying.args, varying.results, parcel);
  error = co_await settle_parcel(call, varying, pieces, copies);
  co_await call.turn();
  co_return error;
}

Task<Error> run_strand(Call& call, VaryingCall& varying, std::size_t number) {
  const std::size_t bytes = varying.float_bytes();
  const Scratch sums(call.host_compute(), bytes);
  const Scratch copies(call.host_compute(), varying.args.device ? bytes : 1);
  auto* const copied =
      varying.args.device ? reinterpret_cast<float*>(copies.bytes().data) : nullptr;
  std::uint32_t step = 0;
  for (Pieces pieces = varying.pieces(); !pieces.done(); skip_parcel(pieces), ++step) {
    if (step % varying.strands != number) continue;
    Error error = co_await sum_parcel(call, varying, pieces, step,
                                      reinterpret_cast<float*>(sums.bytes().data), copied);
    if (error) co_return error;
  }
  co_return Error();
}

}  // namespace

Task<Error> allreduce_varying(Call& call, SparseCall args) {
  VaryingCall varying(call, args);
  for (const CompressedTensor& tensor : args.tensors) {
    tensor.compressor->expect_ranges(varying.strands + 1);
    tensor.compressor->make_room_for_whole();
  }
  std::array<Task<Error>, most_strands> running;
  for (std::size_t i = 0; i < varying.strands; ++i) {
    running[i] = strand(call, run_strand(call, varying, i));
  }
  Error error = co_await when_all(std::span(running).first(varying.strands));
  if (error) co_return error;
  if (varying.nan) {
    varying.results.abandon();
    deliver_nan(call, args);
  } else {
    varying.results.finish();
  }
  co_return error;
}

}  // namespace pith
