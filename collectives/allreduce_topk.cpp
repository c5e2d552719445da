// Top-k allreduce by allgather: every rank elects its own k largest magnitudes, all ranks get all
// lists and add them up in rank order.
//
//   parcel:     0        1        2            tail
//   rank r   select > select > select ...     the rest of the k
//               \ send   \ send   \ send        \ send             to every other rank
//   others       decode   decode   decode         decode > add up > write
//
// Pairs leave while later ones are still being looked for: see compress/topk_selector.hpp. Where
// one parcel holds everything, the tail is all there is. Cost: (parcels + 1) alpha + (P-1) k beta b
// with b bytes a pair, about 3; twice the messages, for values travel behind their indices. The
// error-feedback scheme is that of [Aji, Heafield 2017; Lin et al. 2018], its exact one-pass
// selection ours.
#include <array>

#include "collectives/list_message.hpp"
#include "collectives/result_writer.hpp"
#include "collectives/selectors.hpp"

namespace pith {

namespace {

constexpr std::uint16_t list_lane = 0;
constexpr std::size_t whole = ~std::size_t{0};

struct Gathering {
  SparseCall args;
  bool streams;      // several parcels, sent as they are ready
  std::size_t most;  // pairs of one message
  bool nonfinite = false;

  Pieces pieces() const { return {args.tensors, args.parcel}; }
  // The tail's: every tensor is one piece.
  Pieces tails() const { return {args.tensors, whole}; }
};

std::size_t most_pairs(const SparseCall& args) {
  std::size_t most = 0;
  for (const CompressedTensor& tensor : args.tensors) {
    if (tensor.count > 0) most += elected_of(args.spec().density, tensor.count);
  }
  return most;
}

Task<Error> select_and_send(Call& call, Gathering& gathering) {
  const SparseCall& args = gathering.args;
  Selectors selectors(call, args.tensors, gathering.streams);
  Pieces parcel = gathering.pieces();
  ListAddress name{0, list_lane, 0};
  for (Pieces pieces = parcel; !pieces.done();) {
    const Piece piece = pieces.next();
    selectors[piece.tensor].pass(piece.range.begin, piece.range.size);
    if (!piece.ends_parcel || !gathering.streams) continue;
    const ListMessage message = write_lists(call, args, parcel, {});
    Error error = co_await send_lists_to_all(call, name, message);
    if (error) co_return error;
    co_await call.turn();
    ++name.step;
    parcel = pieces;
  }
  for (Pieces tails = gathering.tails(); !tails.done();) selectors[tails.next().tensor].finish();
  ListHead head;
  if (found_nonfinite(args)) head.flags |= ListHead::nonfinite;
  gathering.nonfinite |= found_nonfinite(args);
  const ListMessage tail = write_lists(call, args, gathering.tails(), head);
  co_return co_await send_lists_to_all(call, name, tail);
}

Task<Error> receive_all(Call& call, Gathering& gathering, Pieces parcel, std::uint32_t step) {
  for (int d = 1; d < call.size(); ++d) {
    const int from = wrap(call.rank() - d, call.size());
    ListHead head;
    Error error = co_await receive_lists(call, gathering.args, parcel, {from, list_lane, step},
                                         static_cast<std::size_t>(from), gathering.most, head);
    if (error) co_return error;
    gathering.nonfinite |= (head.flags & ListHead::nonfinite) != 0;
  }
  co_return Error();
}

Task<Error> receive_parcels(Call& call, Gathering& gathering) {
  std::uint32_t step = 0;
  for (Pieces pieces = gathering.pieces(); gathering.streams && !pieces.done(); ++step) {
    Error error = co_await receive_all(call, gathering, pieces, step);
    if (error) co_return error;
    while (!pieces.next().ends_parcel) {
    }
  }
  co_return co_await receive_all(call, gathering, gathering.tails(), step);
}

// Adds up what all ranks elected, block by block of the result, so that sums stay in the cache.
class Adder {
 public:
  Adder(Call& call, const SparseCall& args)
      : call_(call),
        args_(args),
        sums_(call.compute(), block * sizeof(float)),
        touched_(call.compute(), block / 8),
        indices_(call.compute(), block * sizeof(std::uint32_t)),
        values_(call.compute(), block * sizeof(float)),
        lists_(call.host_compute(), 2 * ranks() * sizeof(SparseList)) {
    call.run<ZeroKernel>({sums_.bytes().data, sums_.bytes().size});
    call.run<ZeroKernel>({touched_.bytes().data, touched_.bytes().size});
  }

  // `run`: where the piece is among those of its tensor.
  void add_up(const Piece& piece, std::size_t run, ResultWriter& writer) {
    const Range& range = piece.range;
    for (std::size_t k = 0; k < chunks_in(range.size, block); ++k) {
      add_block(piece, run, chunk_of(range, block, k), writer);
    }
  }

 private:
  static constexpr std::size_t block = EncodeIndicesKernel::block_elements;

  std::size_t ranks() const { return static_cast<std::size_t>(call_.size()); }

  void add_block(const Piece& piece, std::size_t run, Range range, ResultWriter& writer) {
    const std::size_t n = find_lists(*args_.tensors[piece.tensor].compressor, run, range);
    auto* indices = reinterpret_cast<std::uint32_t*>(indices_.bytes().data);
    std::size_t count = 0;
    call_.run<SumListsKernel>({lists(), n, args_.spec().values,
                               static_cast<std::uint32_t>(range.begin), range.size,
                               reinterpret_cast<float*>(sums_.bytes().data),
                               reinterpret_cast<std::uint64_t*>(touched_.bytes().data), indices,
                               reinterpret_cast<float*>(values_.bytes().data), &count});
    writer.put(range, {indices, values_.bytes().data, count}, DType::f32);
  }

  // In rank order, of each rank what came with the piece and its part of the tail.
  std::size_t find_lists(Compressor& compressor, std::size_t run, Range range) const {
    auto& received = compressor.received(ranks());
    std::size_t n = 0;
    for (std::size_t r = 0; r < ranks(); ++r) {
      const bool own = r == static_cast<std::size_t>(call_.rank());
      const PairList& list = own ? compressor.taken() : received[r];
      const std::size_t tail = list.runs() - 1;
      if (run < tail) lists()[n++] = list.part(run, range.begin, range.size);
      lists()[n++] = list.part(tail, range.begin, range.size);
    }
    return n;
  }
  SparseList* lists() const { return reinterpret_cast<SparseList*>(lists_.bytes().data); }

  Call& call_;
  const SparseCall& args_;
  Scratch sums_;
  Scratch touched_;
  Scratch indices_;
  Scratch values_;
  Scratch lists_;
};

void write_results(Call& call, const SparseCall& args) {
  Adder adder(call, args);
  for (const CompressedTensor& tensor : args.tensors) {
    ResultWriter writer(call, tensor);
    const auto index = static_cast<std::size_t>(&tensor - args.tensors.data());
    std::size_t run = 0;
    for (Pieces pieces(args.tensors, args.parcel); !pieces.done();) {
      const Piece piece = pieces.next();
      if (piece.tensor == index) adder.add_up(piece, run++, writer);
    }
    args.conclude(tensor, writer);
  }
}

}  // namespace

Task<Error> allreduce_topk(Call& call, SparseCall args) {
  Pieces pieces(args.tensors, args.parcel);
  while (!pieces.done() && !pieces.next().ends_parcel) {
  }
  Gathering gathering{args, !pieces.done(), most_pairs(args)};
  std::array<Task<Error>, 2> strands{select_and_send(call, gathering),
                                     receive_parcels(call, gathering)};
  Error error = co_await when_all(strands);
  if (error) co_return error;
  if (gathering.nonfinite && !args.spec().drops_nonfinite) {
    deliver_nan(call, args);
  } else {
    write_results(call, args);
  }
  co_return error;
}

}  // namespace pith
