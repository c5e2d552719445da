#include "collectives/lists/coded_sum.hpp"

#include <algorithm>

#include "collectives/lists/segment_exchange.hpp"
#include "core/mix.hpp"

namespace pith {

namespace {

// Cuts a parcel's blocks into one segment per rank.
class Segments {
 public:
  Segments(const CodedSum& sum, int ranks)
      : sum_(sum),
        blocks_(blocks_in(sum.pieces, sum.coding), ranks),
        ranks_(ranks),
        turn_(static_cast<int>(sum.step % static_cast<std::uint32_t>(ranks))) {}

  // The first segments may have a block more, or all of them: parcel by parcel other ranks'.
  Range blocks(int rank) const { return blocks_[wrap(rank - turn_, ranks_)]; }
  Bytes operator[](int rank) const {
    const Range own = blocks(rank);
    const std::size_t begin = bytes_before(own.begin);
    return {sum_.values + begin, bytes_before(own.begin + own.size) - begin};
  }

 private:
  static std::size_t blocks_in(Pieces pieces, const Coding& coding) {
    std::size_t n = 0;
    for_each_piece(pieces,
                   [&](const Piece& piece) { n += chunks_in(piece.range.size, coding.block); });
    return n;
  }
  std::size_t bytes_before(std::size_t block) const {
    std::size_t bytes = 0;
    for_each_piece(sum_.pieces, [&](const Piece& piece) {
      const std::size_t blocks = std::min(block, chunks_in(piece.range.size, sum_.coding.block));
      block -= blocks;
      bytes += sum_.coding.bytes(std::min(blocks * sum_.coding.block, piece.range.size));
    });
    return bytes;
  }

  const CodedSum& sum_;
  Blocks blocks_;
  int ranks_;
  int turn_;
};
using Exchange = SegmentExchange<Segments>;

// Sums blocks of one vector, from element `begin` on. On a device the rank's own values are there.
Task<Error> sum_blocks(Call& call, const CodedSum& sum, Compressor& compressor, std::size_t begin,
                       SumCodedKernel::Args args) {
  if (!sum.coding.keeps_rest) {
    call.run<SumCodedKernel>(args);
    co_return Error();
  }
  args.own_rank = static_cast<std::size_t>(call.rank());
  float* const own = compressor.accumulator() + begin;
  float* const change = compressor.changes() + begin;
  const VectorQueue queue = sum.args->queue(call);
  if (!queue.on_device()) {
    args.own = own;
    args.change = change;
    call.run<SumCodedKernel>(args);
    co_return Error();
  }
  const std::size_t bytes = args.count * sizeof(float);
  Scratch copied(call.host_compute(), bytes);
  std::byte* const copy = copied.bytes().data;
  co_await queue.until(
      queue.run<CopyKernel>({copy, reinterpret_cast<const std::byte*>(own), bytes}));
  args.change = reinterpret_cast<float*>(copy);
  args.own = args.change;
  call.run<SumCodedKernel>(args);
  const Fence back = queue.run<CopyKernel>({reinterpret_cast<std::byte*>(change), copy, bytes});
  queue.vectors().retire(Lease(), std::move(copied), back);
  co_return Error();
}

// Sums the blocks of this rank, which may lie in several pieces.
Task<Error> sum_segment(Call& call, const CodedSum& sum, const Segments& segments,
                        const Exchange& exchange) {
  const auto p = static_cast<std::size_t>(call.size());
  const Scratch pointers(call.host_compute(), p * sizeof(std::byte*));
  auto** in = reinterpret_cast<const std::byte**>(pointers.bytes().data);
  Range left = segments.blocks(call.rank());
  std::size_t before = 0;  // blocks of earlier pieces
  std::size_t at = 0;      // bytes of the segment that are summed
  Pieces pieces = sum.pieces;
  while (left.size > 0) {
    const Piece piece = pieces.next();
    const std::size_t blocks = chunks_in(piece.range.size, sum.coding.block);
    const std::size_t skipped = left.begin - before;
    before += blocks;
    if (skipped >= blocks) continue;
    const Range part = take_front(left, blocks - skipped);
    const std::size_t begin = skipped * sum.coding.block;
    const std::size_t count = std::min(part.size * sum.coding.block, piece.range.size - begin);
    for (std::size_t r = 0; r < p; ++r) in[r] = exchange.of(static_cast<int>(r)) + at;
    CodingInput input = coding_input(call, *sum.args, piece, true);
    input.first += static_cast<std::uint32_t>(begin);
    std::byte* out = exchange.of(call.rank()) + at;
    Compressor& compressor = *sum.args->tensors[piece.tensor].compressor;
    Error error = co_await sum_blocks(call, sum, compressor, piece.range.begin + begin,
                                      {sum.coding.of_sums(), input, out, in, p, count});
    if (error) co_return error;
    at += sum.coding.bytes(count);
  }
  co_return Error();
}

}  // namespace

std::size_t coded_bytes(Pieces pieces, const Coding& coding) {
  std::size_t bytes = 0;
  for_each_piece(pieces, [&](const Piece& piece) { bytes += coding.bytes(piece.range.size); });
  return bytes;
}

Task<Error> sum_coded_values(Call& call, CodedSum sum) {
  if (call.size() == 1) co_return Error();
  const Segments segments(sum, call.size());
  Exchange exchange(call, segments, {.step = sum.step});
  Task<Error> scattering = exchange.scatter(sum.ready);
  Error error = co_await std::move(scattering);
  if (error) co_return error;
  error = co_await sum_segment(call, sum, segments, exchange);
  if (error) co_return error;
  Task<Error> gathering = exchange.gather();
  error = co_await std::move(gathering);
  if (error) co_return error;
  const std::uint64_t bytes = exchange.bytes(coded_bytes(sum.pieces, sum.coding));
  sum.args->traffic->sent += bytes;
  sum.args->traffic->received += bytes;
  co_return Error();
}

// Ranks draw different numbers, so that their errors cancel out. A majority counts as all ranks'
// sum, so that its mean is a sign.
CodingInput coding_input(const Call& call, const SparseCall& args, const Piece& piece, bool sums) {
  const Compressor& compressor = *args.tensors[piece.tensor].compressor;
  const std::uint64_t of_step = mix(mix(0, compressor.spec().seed), compressor.step);
  const std::uint64_t of_tensor = mix(mix(of_step, compressor.count()), piece.tensor);
  const std::uint64_t who = 2 * static_cast<std::uint64_t>(call.rank()) + (sums ? 1 : 0);
  return {.scale = sums ? static_cast<float>(call.size()) : 1.0f,
          .key = mix(of_tensor, who),
          .first = static_cast<std::uint32_t>(piece.range.begin)};
}

}  // namespace pith
