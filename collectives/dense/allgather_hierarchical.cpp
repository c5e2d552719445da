// Hierarchical allgather: a block crosses to every other host once, not once for each rank.
//
//   between hosts    column j, the blocks of ranks j, goes round a ring of the hosts; on each host
//                    one rank carries it (host_columns.hpp)
//   inside a host    a carrier sends what it has to the other ranks, while more is on its way
//
// Cost with H hosts of R ranks, one chunk a block of m bytes: (H-1)(alpha + beta R m), as the R
// columns share a port, and what passes inside the hosts. A ring of all ranks takes
// (R H - 1)(alpha + beta m). Wins where hosts with several ranks meet over a network, the more the
// fewer hosts there are; where each has one rank, or all are on one, it is the ring.
#include "collectives/dense/host_columns.hpp"

namespace pith {

Task<Error> allgather_ring(Call& call, CollectiveArgs args);
double allgather_ring_cost(const Shape& shape, const LinkCost& link);

namespace {

// Chunk k of the block that a column has of a host; this rank's own lies in the send buffer.
Bytes piece_of(const HostColumns& of, int host, int column, std::size_t k) {
  const int owner = of.owner(host, column);
  if (owner == no_rank) return {};
  if (owner == of.call.rank()) {
    const Range whole{0, elements_in(of.args.send, of.args.type)};
    return part(of.args.send, of.args.type, of.chunk_at(whole, k));
  }
  const Range block = recv_block(of.args, of.call.rank_at(owner));
  return part(of.args.recv, of.args.type, of.chunk_at(block, k));
}

// Sends a piece to the other ranks of this host.
Task<Error> spread(Call& call, const HostColumns& of, std::size_t k, int round, int column) {
  const Bytes piece = piece_of(of, of.host_after(-round), column, k);
  if (piece.size == 0) co_return Error();
  for (const int to : of.hosts.ranks_of(of.host)) {
    if (to == call.rank()) continue;
    Error error = co_await call.send(to, of.inner_lane(k), of.step(k, round, column), piece);
    if (error) co_return error;
  }
  co_return Error();
}

// Passes on what came in the round before, gets the next, and only then has time for this host.
Task<Error> carry(Call& call, const HostColumns& of, std::size_t k, int round, int column) {
  const int host = of.host_after(-round);
  if (round + 1 < of.rounds()) {
    const Bytes out = piece_of(of, host, column, k);
    const Bytes in = piece_of(of, of.host_after(-round - 1), column, k);
    const int to = out.size > 0 ? of.carrier(of.host_after(1), column) : no_rank;
    const int from = in.size > 0 ? of.carrier(of.host_after(-1), column) : no_rank;
    Error error =
        co_await call.exchange(to, from, of.outer_lane(k), of.step(k, round, column), out, in);
    if (error) co_return error;
  }
  co_return co_await spread(call, of, k, round, column);
}

Task<Error> take(Call& call, const HostColumns& of, std::size_t k, int round, int column) {
  const Bytes into = piece_of(of, of.host_after(-round), column, k);
  if (into.size == 0) co_return Error();
  co_return co_await call.recv(of.carrier(of.host, column), of.inner_lane(k),
                               of.step(k, round, column), into);
}

}  // namespace

Task<Error> allgather_hierarchical(Call& call, CollectiveArgs args) {
  const Hosts* const hosts = call.context().hosts;
  if (!hosts || !hosts->share_ranks()) {
    co_return co_await allgather_ring(call, args);
  }
  const HostColumns of(call, args);
  const Range own = recv_block(args, call.callers_rank());
  const Fence copied = copy(call, part(args.recv, args.type, own), args.send);
  Error error = co_await run_columns(call, of, carry, take);
  co_await call.until(copied);
  co_return error;
}

// The link given is that between hosts.
double allgather_hierarchical_cost(const Shape& shape, const LinkCost& link) {
  return with_inner_copies(shape, link, allgather_ring_cost(column_shape(shape), link));
}

}  // namespace pith
