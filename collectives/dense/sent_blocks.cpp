#include "collectives/dense/sent_blocks.hpp"

namespace pith {

namespace {

constexpr std::uint16_t block_lane = 0;

// Copies a chunk at `offset` of what `rank` sends into `here`, which is host memory where the
// peer's buffer is.
Expected<Fence> copy_piece(Call& call, const PeerHandles& theirs, int rank, std::size_t offset,
                           Bytes here) {
  if (!theirs.send) {
    if (Error error = call.copy_from(rank, theirs.far_send + offset, here)) return error;
    return Fence();
  }
  const CopyKernel::Args args{here.data, theirs.send + offset, here.size};
  return theirs.copies_only ? call.host_compute().run<CopyKernel>(args)
                            : call.run<CopyKernel>(args);
}

// Copies by the host; into device memory through pinned memory. Nothing here need suspend, so it
// yields now and then: the engine does other work, and sees an abort.
Task<Error> copy_by_host(Call& call, const PeerHandles& theirs, int rank, std::size_t offset,
                         Bytes into, std::size_t chunk) {
  constexpr std::size_t pieces_a_turn = 16;
  const bool on_device = into.kind != MemoryKind::host;
  const Scratch room = on_device ? Scratch(call.host_compute(), chunk) : Scratch();
  Fence copied;
  for (std::size_t k = 0; k < chunks_in(into.size, chunk); ++k) {
    const Range range = chunk_of({0, into.size}, chunk, k);
    const Bytes target = into.part(range.begin, range.size);
    const Bytes here = on_device ? room.bytes().part(0, range.size) : target;
    const Expected<Fence> read = copy_piece(call, theirs, rank, offset + range.begin, here);
    if (!read) co_return read.error();
    copied = on_device ? copy(call, target, here) : *read;
    if (on_device) co_await call.until(copied);
    if (k % pieces_a_turn == pieces_a_turn - 1) co_await call.turn();
    if (call.comm().revoked) co_return call.comm().revoked;
  }
  co_await call.until(copied);
  co_return Error();
}

bool reads_in_place(const PeerHandles& theirs, Bytes into) {
  return into.kind != MemoryKind::host && theirs.send && !theirs.copies_only;
}

struct Moves {
  CollectiveArgs args;
  HandleExchange& handles;
  const Range* sent;    // as for move_blocks
  std::size_t longest;  // elements of the longest block that this rank sends or gets
  std::size_t chunk;    // in elements
  std::size_t peers;

  // Those of shorter blocks do not all exist.
  std::size_t messages() const { return chunks_in(longest, chunk) * peers; }
  std::size_t lanes() const { return lanes_for(args.tuning, messages()); }
  bool reaches_all(const Call& call) const {
    bool all = true;
    for (int r = 0; r < call.size(); ++r) all &= r == call.rank() || reaches_sent(handles[r]);
    return all;
  }
  bool is_for_each() const { return args.collective == Collective::alltoall; }
  // Where the block for this rank begins in the send buffer of `rank`, in bytes.
  std::size_t offset_in(const Call& call, int rank) const {
    if (!is_for_each()) return 0;
    const Range block =
        sent ? sent[static_cast<std::size_t>(rank)] : send_block(args, call.callers_rank());
    return block.begin * size_of(args.type);
  }
  Bytes sent_to(const Call& call, int rank) const {
    return is_for_each() ? part(args.send, args.type, send_block(args, call.rank_at(rank)))
                         : args.send;
  }
  Bytes block_of(const Call& call, int owner) const {
    return part(args.recv, args.type, recv_block(args, call.rank_at(owner)));
  }
  Bytes piece(Bytes whole, std::size_t k) const {
    return part(whole, args.type, chunk_of({0, elements_in(whole, args.type)}, chunk, k));
  }
};

// Message i goes to, or comes from, the peer at distance i % peers + 1 and has chunk i / peers.
Task<Error> give_blocks(Call& call, const Moves& moves, std::size_t lane) {
  const std::size_t messages = moves.messages();
  for (std::size_t i = lane; i < messages; i += moves.lanes()) {
    const int distance = static_cast<int>(i % moves.peers) + 1;
    const int to = wrap(call.rank() + distance, call.size());
    if (moves.handles[to].sees_send) continue;
    const std::size_t k = i / moves.peers;
    const Bytes data = moves.piece(moves.sent_to(call, to), k);
    if (data.size == 0) continue;
    Error error = co_await call.send(to, block_lane, static_cast<std::uint32_t>(k), data);
    if (error) co_return error;
  }
  co_return Error();
}

Task<Error> take_blocks(Call& call, const Moves& moves, std::size_t lane) {
  const std::size_t messages = moves.messages();
  for (std::size_t i = lane; i < messages; i += moves.lanes()) {
    const int distance = static_cast<int>(i % moves.peers) + 1;
    const int from = wrap(call.rank() - distance, call.size());
    if (reaches_sent(moves.handles[from])) continue;
    const std::size_t k = i / moves.peers;
    const Bytes into = moves.piece(moves.block_of(call, from), k);
    if (into.size == 0) continue;
    Error error = co_await call.recv(from, block_lane, static_cast<std::uint32_t>(k), into);
    if (error) co_return error;
  }
  co_return Error();
}

Task<Error> copy_reached(Call& call, const Moves& moves) {
  for (int d = 1; d < call.size(); ++d) {
    const int rank = wrap(call.rank() + d, call.size());
    const PeerHandles& theirs = moves.handles[rank];
    if (!reaches_sent(theirs)) continue;
    const std::size_t offset = moves.offset_in(call, rank);
    const Bytes block = moves.block_of(call, rank);
    if (block.size == 0) continue;
    if (reads_in_place(theirs, block)) {
      call.run<CopyKernel>({block.data, theirs.send + offset, block.size});
      continue;
    }
    Error error = co_await copy_by_host(call, theirs, rank, offset, block,
                                        moves.chunk * size_of(moves.args.type));
    if (error) co_return error;
  }
  co_return Error();
}

Task<Error> take_all(Call& call, const Moves& moves) {
  Error error = co_await moves.handles.hear();
  if (error) co_return error;
  std::array<Task<Error>, most_lanes + 1> strands;
  std::size_t used = 0;
  if (!moves.reaches_all(call)) {
    for (; used < moves.lanes(); ++used) strands[used] = take_blocks(call, moves, used);
  }
  strands[used++] = copy_reached(call, moves);
  co_return co_await when_all(std::span(strands).first(used));
}

}  // namespace

Task<Error> copy_sent(Call& call, const HandleExchange& handles, int rank, std::size_t offset,
                      Bytes into, Tuning tuning) {
  const PeerHandles& theirs = handles[rank];
  if (reads_in_place(theirs, into)) {
    call.run<CopyKernel>({into.data, theirs.send + offset, into.size});
    co_return Error();
  }
  const std::size_t chunk = std::max<std::size_t>(1, tuning.chunk_bytes);
  co_return co_await copy_by_host(call, theirs, rank, offset, into, chunk);
}

Task<Error> move_blocks(Call& call, const CollectiveArgs& args, HandleExchange& handles,
                        const Range* sent) {
  const Moves moves{args,
                    handles,
                    sent,
                    longest_block(args),
                    chunk_elements(args.tuning, args.type),
                    static_cast<std::size_t>(call.size() - 1)};
  const Fence copied =
      copy(call, moves.block_of(call, call.rank()), moves.sent_to(call, call.rank()));
  std::array<Task<Error>, most_lanes + 1> strands;
  std::size_t used = 0;
  if (handles.hides_send()) {
    for (; used < moves.lanes(); ++used) strands[used] = give_blocks(call, moves, used);
  }
  strands[used++] = take_all(call, moves);
  Error error = co_await when_all(std::span(strands).first(used));
  co_await call.until(copied);
  co_return error;
}

double moved_blocks_cost(const Shape& shape, const LinkCost& link) {
  if (shape.bytes == 0) return 0;  // no chunk, no message
  const double peers = shape.ranks - 1;
  return link.alpha + (peers - 1) * link.message +
         peers * link.beta * static_cast<double>(shape.bytes);
}

}  // namespace pith
