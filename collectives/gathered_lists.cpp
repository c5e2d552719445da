#include "collectives/gathered_lists.hpp"

#include <algorithm>

#include "collectives/list_message.hpp"

namespace pith {

namespace {

std::size_t pieces_in(const SparseCall& args) {
  std::size_t n = 0;
  for (Pieces pieces(args.tensors, args.parcel); !pieces.done(); ++n) {
    static_cast<void>(pieces.next());
  }
  return n;
}

// A device writes a few long pieces sooner than many short ones, and pairs come in order.
bool waits_for_all(const CompressedTensor& tensor) { return tensor.sparse.count || tensor.device; }

}  // namespace

GatheredLists::GatheredLists(Call& call, const SparseCall& args)
    : call_(call),
      args_(args),
      ranks_(call.size()),
      replaced_(call.host_compute(), static_cast<std::size_t>(ranks_) * args.tensors.size()),
      waiting_(call.host_compute(), rounds_in(args)),
      first_(call.host_compute(), args.tensors.size() * sizeof(std::size_t)),
      early_(call.host_compute(), (pieces_in(args) + 1) * sizeof(Early)),
      lists_(call.host_compute(), 3 * static_cast<std::size_t>(ranks_) * sizeof(SparseList)),
      sums_(call, 2 * static_cast<std::size_t>(ranks_)) {
  for (const Scratch* memory : {&replaced_, &waiting_, &early_}) {
    call.run<ZeroKernel>({memory->bytes().data, memory->bytes().size});
  }
  auto* const first = reinterpret_cast<std::size_t*>(first_.bytes().data);
  std::size_t n = 0;
  for (Pieces pieces(args.tensors, args.parcel); !pieces.done(); ++n) {
    const Piece piece = pieces.next();
    if (piece.number == 0) first[piece.tensor] = n;
  }
}

bool GatheredLists::any_replaced(std::size_t tensor) const {
  for (std::size_t r = 0; r < static_cast<std::size_t>(ranks_); ++r) {
    if (replaced(r)[tensor] != std::byte{0}) return true;
  }
  return false;
}

// A rank's list of a piece, where there is one: no more than one each.
std::size_t GatheredLists::find_in_parcel(const Piece& piece, int rank, SparseList* lists) const {
  Compressor& compressor = *args_.tensors[piece.tensor].compressor;
  const auto r = static_cast<std::size_t>(rank);
  const bool own = rank == call_.rank();
  const PairList& list =
      own ? compressor.taken() : compressor.received(static_cast<std::size_t>(ranks_))[r];
  if (!own && replaced(r)[piece.tensor] != std::byte{0}) return 0;
  const std::size_t run = own ? piece.number : run_of_parcel(piece.number);
  if (run >= list.runs() - (own ? 1 : 0)) return 0;
  *lists = list.run(run);
  return 1;
}

std::size_t GatheredLists::find_in_tail(const Piece& piece, const Piece& tail, int rank,
                                        SparseList* lists) const {
  Compressor& compressor = *args_.tensors[piece.tensor].compressor;
  const auto r = static_cast<std::size_t>(rank);
  const bool own = rank == call_.rank();
  const PairList& list =
      own ? compressor.taken() : compressor.received(static_cast<std::size_t>(ranks_))[r];
  const std::size_t run = own ? list.runs() - 1 : run_of_tail(tail.number);
  if (run >= list.runs()) return 0;
  *lists = list.part(run, piece.range.begin, piece.range.size);
  return 1;
}

Task<Error> GatheredLists::came(Round round) {
  if (round.tail) co_return Error();
  if (!selected_) {
    waits(round) = std::byte{1};
    co_return Error();
  }
  Task<Error> writing = write_parcel(round);
  co_return co_await std::move(writing);
}

// Before that, what is selected is more urgent than what is written.
Task<Error> GatheredLists::selected() {
  selected_ = true;
  for (Rounds rounds(args_); !rounds.done();) {
    const Round round = rounds.next();
    if (waits(round) == std::byte{0}) continue;
    Task<Error> writing = write_parcel(round);
    Error error = co_await std::move(writing);
    if (error) co_return error;
  }
  co_return Error();
}

// With a turn behind every part. Lists may move meanwhile.
Task<Error> GatheredLists::write_parcel(Round round) {
  Pieces pieces = round.lists;
  for (bool more = !pieces.done(); more;) {
    const Piece piece = pieces.next();
    more = !piece.ends_parcel;
    const CompressedTensor& tensor = args_.tensors[piece.tensor];
    if (waits_for_all(tensor)) continue;
    ResultWriter writer(call_, tensor);
    for (Range left = piece.range; left.size > 0;) {
      const Range part{left.begin, std::min(left.size, host_elements_at_once)};
      std::size_t n = 0;
      for (int r = 0; r < ranks_; ++r) n += find_in_parcel(piece, r, lists() + n);
      const Fence written = sums_.write({lists(), n}, args_.spec().values, part, writer);
      left = {left.begin + part.size, left.size - part.size};
      co_await call_.until(written);
      co_await call_.turn();
    }
    early(piece) = {writer.count(), true};
  }
  co_return Error();
}

void GatheredLists::write_piece(const Piece& piece, const Piece& tail, ResultWriter& writer) {
  SparseList* const all = lists();
  SparseList* const tails = all + 2 * static_cast<std::size_t>(ranks_);
  std::size_t n = 0;
  std::size_t n_tails = 0;
  std::size_t pairs = 0;
  for (int r = 0; r < ranks_; ++r) {
    n += find_in_parcel(piece, r, all + n);
    const std::size_t found = find_in_tail(piece, tail, r, all + n);
    if (found == 0) continue;
    tails[n_tails++] = all[n++];
    pairs += tails[n_tails - 1].count;
  }
  const DType type = args_.spec().values;
  const Early& before = early(piece);
  if (!before.written || any_replaced(piece.tensor)) {
    sums_.write({all, n}, type, piece.range, writer);
  } else if (pairs == 0) {
    writer.add(before.count, {}, type);
  } else {
    sums_.amend({all, n}, {tails, n_tails}, type, piece.range, writer);
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
      write_piece(piece, tail, writer);
      done += piece.range.size;
    }
    args_.conclude(tensor, writer);
  }
}

}  // namespace pith
