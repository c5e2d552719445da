// Hierarchical reduce-scatter: the network carries each host's sum of a block, not each rank's.
//
//   inside a host    the rank that carries a column (host_columns.hpp) adds what the ranks of its
//                    host give for a block of it, chunk by chunk
//   between hosts    the sum goes round a ring of the hosts, each adds its own, and it arrives
//                    complete at the rank that the block is for
//
// Partial sums are kept in one chunk of scratch for each lane and column.
// Cost with H hosts of R ranks, one chunk a block of m bytes: (H-1)(alpha + beta R m + gamma m), as
// the R columns share a port, and what passes inside the hosts. A ring of all ranks takes
// (R H - 1)(alpha + beta m + gamma m). Wins where hosts with several ranks meet over a network, the
// more the fewer hosts there are; where each has one rank, or all are on one, it is the ring.
#include "collectives/dense/host_columns.hpp"

namespace pith {

Task<Error> reduce_scatter_ring(Call& call, CollectiveArgs args);
double reduce_scatter_ring_cost(const Shape& shape, const LinkCost& link);

namespace {

struct Scattering : HostColumns {
  Scattering(Call& whole, const CollectiveArgs& arguments)
      : HostColumns(whole, arguments),
        ranks(hosts.ranks_of(host).size()),
        carried((static_cast<std::size_t>(columns()) + ranks - 1) / ranks),
        partials(whole.compute(), std::max<std::size_t>(1, lanes) * carried * chunk_bytes()) {}

  std::size_t chunk_bytes() const { return chunk * size_of(args.type); }
  // Whose blocks go through a round: one further back in each.
  int target(int round) const { return host_after(-1 - round); }
  // Chunk k of what this rank adds to a block.
  Bytes input(std::size_t k, int round, int column) const {
    const int owner_rank = owner(target(round), column);
    if (owner_rank == no_rank) return {};
    const Range block = send_block(args, call.rank_at(owner_rank));
    return part(args.send, args.type, chunk_at(block, k));
  }
  // Where the sum of what the block has passed goes.
  Bytes sum(std::size_t k, int round, int column) const {
    const Bytes own = input(k, round, column);
    if (round + 1 == rounds()) {
      return part(args.recv, args.type, chunk_at({0, elements_in(args.recv, args.type)}, k));
    }
    if (ranks == 1 && round == 0) return own;  // nothing is added
    const std::size_t slot = k % lanes * carried + static_cast<std::size_t>(column) / ranks;
    return partials.bytes().part(slot * chunk_bytes(), own.size);
  }

  const std::size_t ranks;    // of this host
  const std::size_t carried;  // columns, at most
  const Scratch partials;
  std::array<Fence, most_lanes> last{};  // of each lane's kernels
};

// Adds what the other ranks of the host give to `have`.
Task<Error> add_others(Call& call, Scattering& of, std::size_t k, int round, int column,
                       const std::byte* have) {
  const Bytes out = of.sum(k, round, column);
  Fence& reduced = of.last[k % of.lanes];
  for (const int from : of.hosts.ranks_of(of.host)) {
    if (from == call.rank()) continue;
    Expected<Borrowed> theirs =
        co_await call.borrow(from, of.inner_lane(k), of.step(k, round, column), out.size);
    if (!theirs) co_return theirs.error();
    reduced = reduce(call, of.args, out, have, theirs->data);
    call.give_back(*theirs, reduced);
    have = out.data;
  }
  if (round + 1 == of.rounds()) reduced = finish(call, of.args, out, reduced);
  co_return Error();
}

// Passes on the sum of the round before, gets the next one, and adds what this host has of it.
Task<Error> carry(Call& call, Scattering& of, std::size_t k, int round, int column) {
  const Bytes own = of.input(k, round, column);
  const std::byte* have = own.data;
  if (round > 0) {
    const Bytes out = of.sum(k, round - 1, column);
    const int to = out.size > 0 ? of.carrier(of.host_after(1), column) : no_rank;
    const int from = own.size > 0 ? of.carrier(of.host_after(-1), column) : no_rank;
    Fence& reduced = of.last[k % of.lanes];
    Expected<Borrowed> theirs = co_await call.exchange_borrow(
        to, from, of.outer_lane(k), of.step(k, round, column), out, own.size, reduced);
    if (!theirs) co_return theirs.error();
    if (own.size == 0) co_return Error();
    const Bytes sum = of.sum(k, round, column);
    reduced = reduce(call, of.args, sum, theirs->data, own.data);
    call.give_back(*theirs, reduced);
    have = sum.data;
  }
  if (own.size == 0) co_return Error();
  co_return co_await add_others(call, of, k, round, column, have);
}

Task<Error> give(Call& call, Scattering& of, std::size_t k, int round, int column) {
  const Bytes own = of.input(k, round, column);
  if (own.size == 0) co_return Error();
  co_return co_await call.send(of.carrier(of.host, column), of.inner_lane(k),
                               of.step(k, round, column), own);
}

}  // namespace

Task<Error> reduce_scatter_hierarchical(Call& call, CollectiveArgs args) {
  const Hosts* const hosts = call.context().hosts;
  if (!hosts || !hosts->share_ranks()) {
    co_return co_await reduce_scatter_ring(call, args);
  }
  Scattering of(call, args);
  Error error = co_await run_columns(call, of, carry, give);
  for (const Fence last : of.last) co_await call.until(last);
  co_return error;
}

// The link given is that between hosts.
double reduce_scatter_hierarchical_cost(const Shape& shape, const LinkCost& link) {
  if (shape.bytes == 0) return 0;  // no chunk, no message
  return with_inner_copies(shape, link, reduce_scatter_ring_cost(column_shape(shape), link));
}

}  // namespace pith
