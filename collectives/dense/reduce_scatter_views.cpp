// Reduce-scatter over views: every rank reduces its own block straight out of all send buffers. It
// is the first half of a two-shot allreduce.
//
// A block in memory that this rank can load from is read in place. A block in memory that can only
// be copied is fetched chunk by chunk. Any other block comes by messages of one chunk each. Works
// in place: the result replaces a block that no other rank reads.
// Cost by messages, one chunk a block of m bytes, where no ranks share memory: alpha +
// (P-1)(beta + gamma) m. Wins where ranks share memory, except for short blocks, where opening and
// closing (handle_exchange.hpp) cost more than they save. Operands are taken in rank order.
// Needs: P <= 32.
#include <cmath>

#include "collectives/dense/shot.hpp"

namespace pith {

namespace {

// The place in recv of the result of `range`, which lies in this rank's block of send.
Bytes result_of(const Shot& shot, Range range, int rank) {
  return part(shot.args.recv, shot.args.type,
              {range.begin - shot.block_of(rank).begin, range.size});
}

Task<Error> reduce_on_device(Call& call, const Shot& shot) {
  const Range own = shot.block_of(call.rank());
  if (own.size == 0) co_return Error();
  const Bytes out = result_of(shot, own, call.rank());
  std::array<const std::byte*, most_view_ranks> inputs;
  find_inputs(call, shot, own, inputs);
  const auto all = std::span(inputs).first(static_cast<std::size_t>(shot.ranks));
  co_await call.until(reduce_all_ranks(call, shot.args, out, all));
  co_return Error();
}

// Reduces every `strands`-th chunk of this rank's block, from chunk `strand` on.
Task<Error> reduce_chunks(Call& call, const Shot& shot, std::size_t strand, std::size_t strands) {
  constexpr std::size_t pieces_a_turn = 16;
  const Scratch fetched = shot.room_for_fetched(call);
  Leases leases;
  std::array<const std::byte*, most_view_ranks> inputs;
  for (std::size_t i = strand; i < shot.chunks(call.rank()); i += strands) {
    const auto k = static_cast<std::uint32_t>(i);
    const Bytes out = result_of(shot, shot.piece(call.rank(), k), call.rank());
    Error taken = co_await take_inputs(call, shot, k, fetched.bytes(), leases, inputs);
    if (taken) co_return taken;
    const auto all = std::span(inputs).first(static_cast<std::size_t>(shot.ranks));
    const Fence reduced = reduce_all_ranks(call, shot.args, out, all);
    leases.give_back(call, reduced);
    co_await call.until(reduced);
    // Nothing here suspends where all memory is in reach: yield to other work, and see an abort.
    if (i % pieces_a_turn != pieces_a_turn - 1) continue;
    co_await call.turn();
    if (call.comm().revoked) co_return call.comm().revoked;
  }
  co_return Error();
}

// On a device several strands overlap copies to it, kernels and messages. The host does one of
// these at a time.
std::size_t strands_of(const Shot& shot, std::size_t messages) {
  return shot.args.send.kind == MemoryKind::host ? 1 : lanes_for(shot.args.tuning, messages);
}

Task<Error> reduce_own_block(Call& call, const Shot& shot) {
  Error heard = co_await shot.handles.hear();
  if (heard) co_return heard;
  if (shot.handles.all_sends_on_device()) {
    co_return co_await reduce_on_device(call, shot);
  }
  std::array<Task<Error>, most_lanes> strands;
  const std::size_t used = strands_of(shot, shot.chunks(call.rank()));
  for (std::size_t s = 0; s < used; ++s) strands[s] = reduce_chunks(call, shot, s, used);
  co_return co_await when_all(std::span(strands).first(used));
}

Task<Error> run_strands(Call& call, const Shot& shot) {
  std::array<Task<Error>, most_lanes + 1> strands;
  std::size_t used = 0;
  if (shot.handles.hides_send()) {
    const auto peers = static_cast<std::size_t>(call.size() - 1);
    const std::size_t giving = strands_of(shot, shot.most_chunks() * peers);
    for (; used < giving; ++used) strands[used] = give_inputs(call, shot, used, giving);
  }
  strands[used++] = reduce_own_block(call, shot);
  co_return co_await when_all(std::span(strands).first(used));
}

}  // namespace

Task<Error> reduce_scatter_views(Call& call, CollectiveArgs args) {
  HandleExchange handles(call, args.send, {}, copies_of(args.tuning));
  Shot shot{args, handles, {}, chunk_elements(args.tuning, args.type), call.size()};
  for (int r = 0; r < call.size(); ++r) {
    shot.blocks[static_cast<std::size_t>(r)] = send_block(args, call.rank_at(r));
  }
  co_return co_await handles.around(run_strands(call, shot));
}

double reduce_scatter_views_cost(const Shape& shape, const LinkCost& link) {
  if (shape.bytes == 0) return 0;  // no chunk, no message
  const double peers = shape.ranks - 1;
  const auto m = static_cast<double>(shape.bytes);
  const double chunks = std::max(1.0, std::ceil(m / double(shape.tuning.chunk_bytes)));
  const double wire = peers * link.beta * m / chunks;
  const double work = peers * link.gamma * m / chunks;
  const double start = link.alpha + (peers - 1) * link.message;
  return start + wire + work + (chunks - 1) * std::max(wire, work);
}

}  // namespace pith
