#include "collectives/lists/gathered_lists.hpp"

#include <algorithm>

#include "collectives/lists/list_message.hpp"
#include "compress/scheme.hpp"

namespace pith {

GatheredLists::GatheredLists(Call& call, const SparseCall& args)
    : call_(call),
      args_(args),
      are_coded_(list_coding_of(args.spec())),
      ranks_(static_cast<std::size_t>(call.size())),
      replaced_(call.host_compute(), ranks_ * args.tensors.size()),
      zeroed_(call.host_compute(), args.tensors.size() * sizeof(std::size_t)),
      lists_(call.host_compute(), 2 * ranks_ * sizeof(SparseList)),
      sums_(call, 2 * ranks_) {
  for (const Scratch* memory : {&replaced_, &zeroed_}) {
    call.run<ZeroKernel>({memory->bytes().data, memory->bytes().size});
  }
}

// Skips sparse results, which have no zeros, and a device's, which one kernel writes faster.
Task<Error> GatheredLists::zero_results() {
  std::size_t since_turn = 0;  // elements zeroed since then
  for (std::size_t t = 0; t < args_.tensors.size(); ++t) {
    const CompressedTensor& tensor = args_.tensors[t];
    if (tensor.sparse.count || tensor.device) continue;
    ResultWriter writer(call_, tensor);
    while (zeroed(t) < tensor.count && !all_came_) {
      const std::size_t count = std::min(tensor.count - zeroed(t), host_elements_at_once);
      const Fence written = writer.put({zeroed(t), count}, {}, DType::f32);
      co_await call_.until(written);
      zeroed(t) += count;
      since_turn += count;
      if (since_turn < host_elements_at_once) continue;
      since_turn = 0;
      co_await call_.turn();
    }
  }
  co_return Error();
}

// Collects the lists for a piece in rank order: of each rank the run of its parcel, then that of
// its tail. Returns their number.
std::size_t GatheredLists::find_lists(const Piece& piece, const Piece& tail) const {
  Compressor& compressor = *args_.tensors[piece.tensor].compressor;
  auto& received = compressor.received(ranks_);
  std::size_t n = 0;
  const auto put = [&](const PairList& list, std::size_t run) {
    if (run < list.runs()) lists()[n++] = list.run(run);
  };
  for (std::size_t r = 0; r < ranks_; ++r) {
    if (r == static_cast<std::size_t>(call_.rank()) && !are_coded_) {
      const PairList& taken = compressor.taken();
      const std::size_t last = taken.runs() - 1;
      if (piece.number < last) put(taken, piece.number);
      put(taken, last);
      continue;
    }
    const bool is_replaced = replaced(r)[piece.tensor] != std::byte{0};
    if (!is_replaced) put(received[r], run_of_parcel(piece.number));
    put(received[r], run_of_tail(tail.number));
  }
  return n;
}

void GatheredLists::write_piece(const Piece& piece, std::size_t lists_found, ResultWriter& writer) {
  const DType type = args_.spec().values;
  const std::span found{lists(), lists_found};
  if (piece.range.begin + piece.range.size <= zeroed(piece.tensor)) {
    sums_.add(found, type, piece.range, writer);
  } else {
    sums_.write(found, type, piece.range, writer);
  }
}

void GatheredLists::write_results() {
  Pieces pieces(args_.tensors, args_.parcel);
  Pieces tails = Rounds(args_).tails(args_);
  for (const CompressedTensor& tensor : args_.tensors) {
    ResultWriter writer(call_, tensor);
    Piece tail;
    for (std::size_t done = 0; done < tensor.count;) {
      if (done == tail.range.begin + tail.range.size) tail = tails.next();
      const Piece piece = pieces.next();
      write_piece(piece, find_lists(piece, tail), writer);
      done += piece.range.size;
    }
    args_.conclude(tensor, writer);
  }
}

}  // namespace pith
