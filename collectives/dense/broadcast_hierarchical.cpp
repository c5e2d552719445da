// Hierarchical broadcast: the vector crosses to each host once.
//
// One rank of every host gets the vector from another host, chunk by chunk, and passes each on to
// the hosts behind it and down a binary tree of its own host (host_tree.hpp). Hosts form a chain
// for long vectors, a binary tree for short ones. Free strands take the next chunk, as in
// reduce_tree.cpp.
//
// Cost with H hosts and chunks of c bytes: in a chain (H-1)(alpha + beta c), and then beta a byte;
// a chain of all ranks makes as many hops as there are ranks. Wins where hosts with several ranks
// meet over a network; where each has one rank, or all are on one, it is the binomial tree up to
// one chunk, and then that chain.
#include "collectives/dense/host_tree.hpp"
#include "collectives/registry.hpp"
#include "collectives/typed_span.hpp"

namespace pith {

namespace {

const Algorithm& flat_algorithm(std::size_t bytes, const Tuning& tuning) {
  return *find_algorithm(Collective::broadcast, bytes <= tuning.chunk_bytes ? "binomial" : "chain");
}

struct Spreading {
  CollectiveArgs args;
  Branch node;
  std::size_t chunk = 0;
  std::size_t chunks = 0;
  std::size_t lanes = 0;

  bool is_root() const { return node.parent() < 0; }
  Bytes piece(std::size_t k) const {
    return part(is_root() ? args.send : args.recv, args.type, chunk_of({0, args.count}, chunk, k));
  }
};

// `next`: the first chunk that no strand has taken.
Task<Error> spread(Call& call, const Spreading& of, std::size_t& next) {
  for (std::size_t k = next++; k < of.chunks; k = next++) {
    const auto lane = static_cast<std::uint16_t>(k % of.lanes);
    const auto step = static_cast<std::uint32_t>(k);
    const Bytes piece = of.piece(k);
    if (!of.is_root()) {
      Error error = co_await call.recv(of.node.parent(), lane, step, piece);
      if (error) co_return error;
    }
    for (const int child : of.node.children()) {
      Error error = co_await call.send(child, lane, step, piece);
      if (error) co_return error;
    }
  }
  co_return Error();
}

}  // namespace

Task<Error> broadcast_hierarchical(Call& call, CollectiveArgs args) {
  const Hosts* const hosts = call.context().hosts;
  const std::size_t bytes = args.count * size_of(args.type);
  if (!hosts || !hosts->share_ranks()) {
    co_return co_await flat_algorithm(bytes, args.tuning).run(call, args);
  }
  const HostWay way = way_between(hosts->count(), bytes, args.tuning);
  args.tuning.chunk_bytes = way.chunk_bytes;
  Spreading of{args, host_branch(*hosts, call.rank(), args.root, way.chain),
               chunk_elements(args.tuning, args.type)};
  of.chunks = chunks_in(args.count, of.chunk);
  of.lanes = lanes_for(args.tuning, of.chunks);
  std::array<Task<Error>, most_lanes> strands;
  std::size_t next = 0;
  for (std::size_t l = 0; l < of.lanes; ++l) strands[l] = spread(call, of, next);
  Error error = co_await when_all(std::span(strands).first(of.lanes));
  if (of.is_root()) co_await call.until(copy(call, args.recv, args.send));
  co_return error;
}

// The link given is that between hosts.
double broadcast_hierarchical_cost(const Shape& shape, const LinkCost& link) {
  if (shape.ranks_a_host <= 1) {
    return flat_algorithm(shape.bytes, shape.tuning).cost(shape, link);
  }
  if (shape.bytes == 0) return 0;  // no chunk, no message
  const HostWay way = way_between(shape.hosts, shape.bytes, shape.tuning);
  const auto bytes = static_cast<double>(shape.bytes);
  const double chunk = std::min(bytes, static_cast<double>(way.chunk_bytes));
  const double levels = ceil_log2(shape.ranks_a_host);
  const double copy_byte = 2 * link.gamma;
  const double between = time_between(way, shape.hosts, shape.bytes, link);
  return link.message + std::max(between, 2 * copy_byte * bytes) + levels * copy_byte * chunk;
}

}  // namespace pith
