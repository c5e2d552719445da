// The blocks of an allgather or a reduce-scatter by columns: column j has the block of rank j of
// every host. Each goes round a ring of the hosts, so that a block crosses to a host only once; on
// each host one of the ranks carries it, and exchanges with the others what it is made of or needed
// for.
//
//   hosts of 3, 1 and 2 ranks       column 0   column 1   column 2      a, d, e: ranks 0 of them
//     a b c   d   e f                a d e      b - f      c - -        by a d e, b d f, c d e
//
// A round moves one chunk of every block one host further. Strands do the same chunks, rounds and
// columns in the same order on all ranks, so that none waits for one that waits for it.
#pragma once

#include "collectives/hosts.hpp"
#include "collectives/typed_span.hpp"

namespace pith {

struct HostColumns {
  HostColumns(const Call& whole, const CollectiveArgs& arguments)
      : call(whole),
        args(arguments),
        hosts(*whole.context().hosts),
        host(hosts.host_of(whole.rank())),
        chunk(chunk_elements(args.tuning, args.type)),
        chunks(chunks_in(longest_block(args), chunk)),
        lanes(lanes_for(args.tuning, chunks)) {}

  int rounds() const { return hosts.count(); }
  int columns() const { return hosts.most_ranks(); }
  // distance: from -hosts to hosts - 1.
  int host_after(int distance) const { return wrap(host + distance, hosts.count()); }
  bool carries(int column) const { return carrier(host, column) == call.rank(); }
  int carrier(int of_host, int column) const { return hosts.carrier(of_host, column); }
  // The rank whose block a column has of a host; no_rank: it has none.
  int owner(int of_host, int column) const {
    const bool exists = static_cast<std::size_t>(column) < hosts.ranks_of(of_host).size();
    return exists ? hosts.owner(of_host, column) : no_rank;
  }
  Range chunk_at(Range block, std::size_t k) const { return chunk_of(block, chunk, k); }

  // Names of messages: between hosts, and inside one.
  std::uint16_t outer_lane(std::size_t k) const { return static_cast<std::uint16_t>(k % lanes); }
  std::uint16_t inner_lane(std::size_t k) const {
    return static_cast<std::uint16_t>(most_lanes + k % lanes);
  }
  std::uint32_t step(std::size_t k, int round, int column) const {
    const auto turn = k * static_cast<std::size_t>(rounds()) + static_cast<std::size_t>(round);
    return static_cast<std::uint32_t>(turn * static_cast<std::size_t>(columns()) +
                                      static_cast<std::size_t>(column));
  }

  const Call& call;
  const CollectiveArgs& args;
  const Hosts& hosts;
  const int host;  // this rank's
  const std::size_t chunk;
  const std::size_t chunks;
  const std::size_t lanes;
};

// One round of a chunk of a column: of a rank that carries the column, or of another of its host.
template <class Columns>
using ColumnRound = Task<Error> (*)(Call& call, Columns& of, std::size_t k, int round, int column);

// Every `lanes`-th chunk from chunk `lane` on, in the columns that this rank carries, or in the
// others.
template <class Columns>
Task<Error> column_strand(Call& call, Columns& of, std::size_t lane, bool carries,
                          ColumnRound<Columns> run) {
  for (std::size_t k = lane; k < of.chunks; k += of.lanes) {
    for (int round = 0; round < of.rounds(); ++round) {
      for (int column = 0; column < of.columns(); ++column) {
        if (of.carries(column) != carries) continue;
        Error error = co_await run(call, of, k, round, column);
        if (error) co_return error;
      }
    }
  }
  co_return Error();
}

// `Columns`: HostColumns, or with what an algorithm adds to them; `const` where nothing changes.
template <class Columns>
Task<Error> run_columns(Call& call, Columns& of, ColumnRound<Columns> carry,
                        ColumnRound<Columns> other) {
  std::array<Task<Error>, 2 * most_lanes> strands;
  for (std::size_t lane = 0; lane < of.lanes; ++lane) {
    strands[2 * lane] = column_strand(call, of, lane, true, carry);
    strands[2 * lane + 1] = column_strand(call, of, lane, false, other);
  }
  co_return co_await when_all(std::span(strands).first(2 * of.lanes));
}

// Of a cost: the shape of one column, whose ports the columns share.
inline Shape column_shape(Shape shape) {
  shape.ranks = shape.ranks_a_host > 1 ? shape.hosts : shape.ranks;
  return shape;
}

// Of a cost: beside `outside`, what passes between hosts, a rank sends what its column has to the
// others of its host and takes theirs, which a core copies or adds at both ends. All but those of
// the last chunk and round go while others are on the network.
inline double with_inner_copies(const Shape& shape, const LinkCost& link, double outside) {
  const double others = std::max(1, shape.ranks_a_host) - 1;
  if (others == 0) return outside;
  const double rounds = column_shape(shape).ranks;
  const auto bytes = static_cast<double>(shape.bytes);
  const double chunk = std::min(bytes, static_cast<double>(shape.tuning.chunk_bytes));
  const double copy_byte = 2 * others * link.gamma;
  return std::max(outside + copy_byte * chunk, copy_byte * rounds * bytes) + link.message;
}

}  // namespace pith
