// Hierarchical all-to-all: what a rank has for a host crosses to it in one message.
//
//   between hosts    a rank sends its blocks for all ranks of another host to one of these, the one
//                    of its own number there
//   inside a host    that one passes each block on to the rank that it is for
//
//   hosts a b of 2 ranks:    a0 -- for b0, b1 --> b0 -- from a0 --> b1
//                            a1 -- for b0, b1 --> b1 -- from a1 --> b0
//
// All ranks of a host send and get, each as much. Blocks for their own host they send by
// themselves. Cost with H hosts of R ranks, blocks of m bytes: alpha + (H-1) beta R R m on the
// hosts' ports, and what passes inside the hosts. Pairwise sends R times as many messages between
// hosts, but as many bytes. So this wins where blocks are so short that messages take longer than
// bytes: with 4 hosts of 4 ranks over 1 Gbit/s (2 cores) 2.5 times as fast with blocks of 64 bytes,
// 1.9 with 4 KiB. Where those for a host are more than 32 KiB or a chunk, where blocks are uneven,
// so that only two ranks know how long each is, where each host has one rank, or all are on one, it
// is pairwise.
// Needs: send and recv must not overlap.
#include "collectives/dense/host_columns.hpp"

namespace pith {

Task<Error> alltoall_pairwise(Call& call, CollectiveArgs args);
double alltoall_pairwise_cost(const Shape& shape, const LinkCost& link);

namespace {

// Messages inside a host are named by the rank whose block it is; between hosts there is one a
// pair.
constexpr std::uint16_t outer_lane = 0;
constexpr std::uint16_t inner_lane = 1;

// Of longer ones fewer messages save little, and many that arrive at once overflow a port: 4 hosts
// of 2 ranks, joined to 64 KiB: 0.6 times as fast as pairwise.
constexpr std::size_t most_joined = std::size_t{32} << 10;

bool pays_to_join(std::size_t block_bytes, int ranks, const Tuning& tuning) {
  return block_bytes <= std::min(tuning.chunk_bytes, most_joined) / static_cast<std::size_t>(ranks);
}

// The blocks of one call. Strands take every so-manieth distance between hosts, all ranks the same.
struct HostBlocks {
  HostBlocks(const Call& whole, const CollectiveArgs& arguments)
      : call(whole),
        args(arguments),
        hosts(*whole.context().hosts),
        host(hosts.host_of(whole.rank())),
        block_bytes(args.count * size_of(args.type)),
        strands(window(args.tuning, static_cast<std::size_t>(hosts.count()),
                       block_bytes * static_cast<std::size_t>(hosts.most_ranks()))) {}

  std::span<const int> ranks_at(int distance) const {
    return hosts.ranks_of(wrap(host + distance, hosts.count()));
  }
  // The rank that gets on a host what `rank` has for it.
  int carrier(int of_host, int rank) const { return hosts.carrier(of_host, hosts.index_of(rank)); }
  std::size_t distances() const { return static_cast<std::size_t>(hosts.count()); }
  std::size_t bytes_for(std::span<const int> ranks) const { return ranks.size() * block_bytes; }
  Bytes sent_to(int rank) const {
    return part(args.send, args.type, send_block(args, call.rank_at(rank)));
  }
  Bytes got_from(int rank) const {
    return part(args.recv, args.type, recv_block(args, call.rank_at(rank)));
  }
  Bytes block_in(Bytes blocks, std::size_t i) const {
    return blocks.part(i * block_bytes, block_bytes);
  }
  // For the blocks of any host.
  Scratch room() const {
    return {call.compute(), static_cast<std::size_t>(hosts.most_ranks()) * block_bytes};
  }
  // Whether the blocks for these ranks lie one behind the other in the send buffer.
  bool adjoin(std::span<const int> ranks) const {
    bool all = true;
    for (std::size_t i = 1; i < ranks.size(); ++i) {
      all &= call.rank_at(ranks[i]) == call.rank_at(ranks[0]) + static_cast<int>(i);
    }
    return all;
  }

  const Call& call;
  const CollectiveArgs& args;
  const Hosts& hosts;
  const int host;  // this rank's
  const std::size_t block_bytes;
  const std::size_t strands;
};

// Sends this rank's blocks for the other hosts.
Task<Error> give(Call& call, const HostBlocks& of, std::size_t strand) {
  Scratch room;
  for (std::size_t d = strand; d < of.distances(); d += of.strands) {
    if (d == 0) continue;
    const std::span<const int> ranks = of.ranks_at(static_cast<int>(d));
    const int to = of.carrier(of.hosts.host_of(ranks[0]), call.rank());
    Bytes blocks{of.sent_to(ranks[0]).data, of.bytes_for(ranks), of.args.send.kind};
    Fence packed;
    if (!of.adjoin(ranks)) {
      if (!room.bytes().data) room = of.room();
      blocks = room.bytes().part(0, blocks.size);
      for (std::size_t i = 0; i < ranks.size(); ++i) {
        packed = copy(call, of.block_in(blocks, i), of.sent_to(ranks[i]));
      }
    }
    Error error = co_await call.send(to, outer_lane, 0, blocks, packed);
    if (error) co_return error;
  }
  co_return Error();
}

// Gives the ranks of this host the blocks that `from` has for them: if that is this rank, from its
// send buffer, else those that have come from there.
Task<Error> spread(Call& call, const HostBlocks& of, int from, Bytes blocks) {
  const std::span<const int> ranks = of.ranks_at(0);
  const auto count = static_cast<int>(ranks.size());
  const auto block = [&](std::size_t i) {
    return from == call.rank() ? of.sent_to(ranks[i]) : of.block_in(blocks, i);
  };
  const int own = of.hosts.index_of(call.rank());
  const Fence copied = copy(call, of.got_from(from), block(static_cast<std::size_t>(own)));
  Error error;
  for (int d = 1; d < count && !error; ++d) {
    const auto i = static_cast<std::size_t>(wrap(own + d, count));
    error = co_await call.send(ranks[i], inner_lane, static_cast<std::uint32_t>(from), block(i));
  }
  co_await call.until(copied);
  co_return error;
}

// Gets what this rank carries, and passes it on.
Task<Error> carry(Call& call, const HostBlocks& of, std::size_t strand) {
  Scratch room;
  for (std::size_t d = strand; d < of.distances(); d += of.strands) {
    for (const int from : of.ranks_at(-static_cast<int>(d))) {
      if (of.carrier(of.host, from) != call.rank()) continue;
      Bytes blocks;
      if (d > 0) {
        if (!room.bytes().data) room = of.room();
        blocks = room.bytes().part(0, of.bytes_for(of.ranks_at(0)));
        Error error = co_await call.recv(from, outer_lane, 0, blocks);
        if (error) co_return error;
      }
      Error error = co_await spread(call, of, from, blocks);
      if (error) co_return error;
    }
  }
  co_return Error();
}

// Gets what other ranks of this host carry for this one, their own blocks included.
Task<Error> take(Call& call, const HostBlocks& of, std::size_t strand) {
  for (std::size_t d = strand; d < of.distances(); d += of.strands) {
    for (const int from : of.ranks_at(-static_cast<int>(d))) {
      const int by = of.carrier(of.host, from);
      if (by == call.rank()) continue;
      Error error =
          co_await call.recv(by, inner_lane, static_cast<std::uint32_t>(from), of.got_from(from));
      if (error) co_return error;
    }
  }
  co_return Error();
}

}  // namespace

Task<Error> alltoall_hierarchical(Call& call, CollectiveArgs args) {
  const Hosts* const hosts = call.context().hosts;
  const bool joins =
      hosts && hosts->share_ranks() && !args.uneven.used() &&
      pays_to_join(args.count * size_of(args.type), hosts->most_ranks(), args.tuning);
  if (!joins) co_return co_await alltoall_pairwise(call, args);
  if (args.count == 0) co_return Error();
  const HostBlocks of(call, args);
  std::array<Task<Error>, 3 * most_window> strands;
  for (std::size_t strand = 0; strand < of.strands; ++strand) {
    strands[3 * strand] = give(call, of, strand);
    strands[3 * strand + 1] = carry(call, of, strand);
    strands[3 * strand + 2] = take(call, of, strand);
  }
  co_return co_await when_all(std::span(strands).first(3 * of.strands));
}

// The link given is that between hosts.
double alltoall_hierarchical_cost(const Shape& shape, const LinkCost& link) {
  const bool joins = shape.hosts > 1 && shape.ranks_a_host > 1 &&
                     pays_to_join(shape.bytes, shape.ranks_a_host, shape.tuning);
  if (!joins) return alltoall_pairwise_cost(shape, link);
  if (shape.bytes == 0) return 0;  // no block, no message
  Shape between = column_shape(shape);
  between.bytes *= static_cast<std::size_t>(shape.ranks_a_host);
  return with_inner_copies(shape, link, alltoall_pairwise_cost(between, link));
}

}  // namespace pith
