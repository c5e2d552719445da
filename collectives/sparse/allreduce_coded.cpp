// Dense allreduce of values coded in blocks with few bits (Scheme::coding): quantised once by each
// rank, summed in float32 in rank order, and quantised once more. What coding loses is gone, or
// stays with the rank that codes (Coding::keeps_rest); or accumulators are momentums, and decay
// (Coding::momentum). Their changes are noted on the way, and made when the call has succeeded.
//
//   strand 0:  add, encode > scatter > sum > gather > decode   parcels 0, 4, 8, ...
//   strand 1:     add, encode > scatter > sum > gather > decode       1, 5, 9, ...
//   ...
//
// A rank that finds its gradient not finite marks what it sends from that parcel on. All ranks see
// it in the parcel's first sum, and deliver NaN in the end. A sum beyond float32 makes its block
// NaN (bf16: is clipped), and is gone.
// Cost: coded_cost.hpp.
#include <algorithm>
#include <array>
#include <cstring>

#include "collectives/lists/coded_sum.hpp"
#include "collectives/sparse/coded_cost.hpp"
#include "collectives/sparse/dense_result.hpp"
#include "collectives/sparse/take_values.hpp"
#include "collectives/strands.hpp"

namespace pith {

namespace {

constexpr std::size_t most_strands = CodedShape::strands;

// Decodes what was received into the results.
class Results : public WholeResults {
 public:
  Results(Call& call, const SparseCall& args, const Coding& coding)
      : WholeResults(call, args), call_(call), args_(args), coding_(coding) {}

  void put(const Piece& piece, const std::byte* coded) {
    const CompressedTensor& tensor = args_.tensors[piece.tensor];
    if (tensor.sparse.count) return put_pairs(piece, coded);
    decode(piece, coded, tensor.recv + piece.range.begin * size_of(tensor.type), tensor.type,
           divisor_of(tensor, call_.size()), tensor.device ? *tensor.device : call_.compute());
  }

 private:
  void decode(const Piece& piece, const std::byte* coded, std::byte* out, DType type, float divisor,
              Compute& compute) const {
    compute.run<DecodeValuesKernel>({coding_, coded, piece.range.size, out, type, divisor});
  }
  void put_pairs(const Piece& piece, const std::byte* coded) {
    const Scratch sums(call_.host_compute(), piece.range.size * sizeof(float));
    decode(piece, coded, sums.bytes().data, DType::f32, 1, call_.host_compute());
    conclude_before(piece.tensor);
    put_all(call_, args_.tensors[piece.tensor], writer(), piece.range, sums.bytes().data,
            DType::f32);
  }

  Call& call_;
  const SparseCall& args_;
  const Coding& coding_;
};

struct CodedCall {
  CodedCall(Call& call, const SparseCall& sparse)
      : args(sparse), coding(*coding_of(sparse.spec())), results(call, args, coding) {
    std::size_t all = 0;
    for (const CompressedTensor& tensor : args.tensors) all += tensor.count;
    parcel = CodedShape::parcel(all);
    strands =
        any_pairs(args) ? 1 : std::clamp<std::size_t>(chunks_in(all, parcel), 1, most_strands);
  }
  CodedCall(const CodedCall&) = delete;
  CodedCall& operator=(const CodedCall&) = delete;

  Pieces pieces() const { return {args.tensors, parcel}; }
  std::size_t most_bytes() const {
    std::size_t most = 1;
    for (Pieces at = pieces(); !at.done(); skip_parcel(at)) {
      most = std::max(most, coded_bytes(at, coding));
    }
    return most;
  }

  const SparseCall& args;
  const Coding coding;
  std::size_t parcel = 0;   // elements
  std::size_t strands = 1;  // of this rank: it depends on its results
  bool nan = false;         // some rank's gradient is not finite
  Results results;
};

// All bits set: a marked scale in every block, or NaN in every value.
void poison(std::byte* values, std::size_t bytes) { std::memset(values, 0xff, bytes); }

// What makes of a momentum what a call leaves of it: minus the part that goes.
ConvertKernel::Args decay(const Coding& coding, const Compressor& compressor, Range part) {
  const float divisor = -1 / (1 - coding.momentum);
  const auto* const own = reinterpret_cast<const std::byte*>(compressor.accumulator() + part.begin);
  auto* const change = reinterpret_cast<std::byte*>(compressor.changes() + part.begin);
  return {change, DType::f32, own, DType::f32, part.size, divisor};
}

// Adds gradients and encodes the sums while they are in the cache.
Task<Error> encode_piece(Call& call, const CodedCall& coded, const Piece& piece,
                         std::byte* values) {
  constexpr std::size_t in_cache = std::size_t{1} << 15;
  const SparseCall& args = coded.args;
  const VectorQueue queue = args.queue(call);
  Compressor& compressor = *args.tensors[piece.tensor].compressor;
  CodingInput input = coding_input(call, args, piece, false);
  for (Range left = piece.range; left.size > 0;) {
    const Range part = take_front(left, args.device ? left.size : in_cache);
    Error error = co_await add_in_turns(call, args, compressor, part);
    if (error) co_return error;
    input.first = static_cast<std::uint32_t>(part.begin);
    const float* const own = compressor.accumulator() + part.begin;
    Fence done = queue.run<EncodeValuesKernel>({coded.coding, input, own, part.size, values});
    if (coded.coding.keeps_rest) {
      auto* const change = reinterpret_cast<std::byte*>(compressor.changes() + part.begin);
      done = queue.run<DecodeValuesKernel>(
          {coded.coding, values, part.size, change, DType::f32, -1, own});
    } else if (coded.coding.momentum > 0) {
      done = queue.run<ConvertKernel>(decay(coded.coding, compressor, part));
    }
    co_await queue.until(done);
    values += coded.coding.bytes(part.size);
  }
  co_return Error();
}

Task<Error> encode_parcel(Call& call, const CodedCall& coded, Pieces pieces, std::byte* values) {
  std::byte* at = values;
  for (bool more = true; more;) {
    const Piece piece = pieces.next();
    Error error = co_await encode_piece(call, coded, piece, at);
    if (error) co_return error;
    at += coded.coding.bytes(piece.range.size);
    more = !piece.ends_parcel;
  }
  const bool poisoned = found_nonfinite(coded.args) && !coded.args.spec().drops_nonfinite;
  if (poisoned) poison(values, static_cast<std::size_t>(at - values));
  co_return Error();
}

void put_parcel(CodedCall& coded, Pieces pieces, const std::byte* values) {
  for_each_piece(pieces, [&](const Piece& piece) {
    coded.results.put(piece, values);
    values += coded.coding.bytes(piece.range.size);
  });
}

// Sums of bf16 are clipped, so that they are NaN only for this.
bool is_poisoned(const Coding& coding, const std::byte* values) {
  if (coding.kind == Coding::Kind::bf16) return is_nan(values, DType::bf16);
  std::uint32_t scale = 0;
  std::memcpy(&scale, values, sizeof scale);
  return scale == Coding::marked_scale;
}

// `values` is reused: on a device the queue decodes a parcel before it encodes the next one.
Task<Error> sum_parcel(Call& call, CodedCall& coded, Pieces pieces, std::uint32_t step,
                       std::byte* values) {
  Error error = co_await encode_parcel(call, coded, pieces, values);
  if (error) co_return error;
  CodedSum sum;
  sum.args = &coded.args;
  sum.coding = coded.coding;
  sum.pieces = pieces;
  sum.values = values;
  sum.step = step;
  error = co_await sum_coded_values(call, sum);
  if (error) co_return error;
  coded.nan = coded.nan || is_poisoned(coded.coding, values);
  if (!coded.nan) put_parcel(coded, pieces, values);
  co_await call.turn();
  co_return error;
}

Task<Error> run_strand(Call& call, CodedCall& coded, std::size_t number, std::byte* values) {
  std::uint32_t step = 0;
  for (Pieces pieces = coded.pieces(); !pieces.done(); skip_parcel(pieces), ++step) {
    if (step % coded.strands != number) continue;
    Error error = co_await sum_parcel(call, coded, pieces, step, values);
    if (error) co_return error;
  }
  co_return Error();
}

Task<Error> run_strands(Call& call, CodedCall& coded) {
  const std::size_t room = coded.most_bytes();
  const Scratch memory(call.host_compute(), coded.strands * room);
  std::array<Task<Error>, most_strands> running;
  for (std::size_t i = 0; i < coded.strands; ++i) {
    running[i] = strand(call, run_strand(call, coded, i, memory.bytes().data + i * room));
  }
  Error error = co_await when_all(std::span(running).first(coded.strands));
  // A device may still read the memory.
  const VectorQueue queue = coded.args.queue(call);
  if (queue.on_device()) co_await queue.until(queue.run<CopyKernel>({nullptr, nullptr, 0}));
  co_return error;
}

}  // namespace

Task<Error> allreduce_coded(Call& call, SparseCall args) {
  CodedCall coded(call, args);
  for (const CompressedTensor& tensor : args.tensors) {
    tensor.compressor->expect_ranges(coded.strands + 1);
    tensor.compressor->make_room_for_whole();
  }
  Error error = co_await run_strands(call, coded);
  if (error) co_return error;
  if (coded.nan) {
    coded.results.abandon();
    deliver_nan(call, args);
  } else {
    coded.results.finish();
  }
  co_return error;
}

}  // namespace pith
