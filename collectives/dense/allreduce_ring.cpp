// Ring allreduce: reduce-scatter, then allgather, around one ring.
//
//   step 0     step 1                  The vector is cut into P blocks. Block b starts at rank b,
//   b --b--> b+1 --b--> b+2 --> ...    is reduced by every rank that it passes, is complete at
//                                      rank b-1, and goes round once more to all ranks.
//
// Each block is cut into chunks. Each of `lanes` strands walks the ring with every lanes-th chunk,
// so that one chunk is reduced while others are on the wire. Bandwidth-optimal [Patarasu,
// Yuan 2009].
// Cost with one chunk a block: 2(P-1)(alpha + beta n/P) + (P-1) gamma n/P. Wins for long vectors.
// Needs: nothing. Each block is summed once, in ring order: all ranks get the same bits.
#include <cmath>

#include "collectives/typed_span.hpp"

namespace pith {

namespace {

struct Ring {
  int next;
  int previous;
  Blocks blocks;
  std::size_t chunk;
  std::size_t chunks;
};

// Chunk k of every block. Blocks are named by their distance on the ring from this rank's own.
class Lane {
 public:
  Lane(const Call& call, const CollectiveArgs& args, const Ring& ring, std::size_t k)
      : call_(call), args_(args), ring_(ring), k_(k) {}

  // `distance`: from -P to 1.
  Bytes sent(int distance) const { return part(args_.send, args_.type, piece(distance)); }
  Bytes received(int distance) const { return part(args_.recv, args_.type, piece(distance)); }

 private:
  Range piece(int distance) const {
    const int b = wrap(call_.rank() + distance, call_.size());
    return chunk_of(ring_.blocks[b], ring_.chunk, k_);
  }

  const Call& call_;
  const CollectiveArgs& args_;
  const Ring& ring_;
  std::size_t k_;
};

Task<Error> ring_lane(Call& call, CollectiveArgs args, Ring ring, std::uint16_t lane) {
  const int p = call.size();
  std::uint32_t step = 0;
  for (std::size_t k = lane; k < ring.chunks; k += static_cast<std::size_t>(args.tuning.lanes)) {
    const Lane at(call, args, ring, k);
    Fence reduced;
    for (int s = 0; s < p - 1; ++s, ++step) {
      const Bytes out = s == 0 ? at.sent(0) : at.received(-s);
      const Bytes in = at.received(-s - 1);
      Expected<Borrowed> partial = co_await call.exchange_borrow(ring.next, ring.previous, lane,
                                                                 step, out, in.size, reduced);
      if (!partial) co_return partial.error();
      reduced = reduce(call, args, in, partial->data, at.sent(-s - 1).data);
      call.give_back(*partial, reduced);
    }
    reduced = finish(call, args, at.received(1), reduced);
    for (int s = 0; s < p - 1; ++s, ++step) {
      Error error = co_await call.exchange(ring.next, ring.previous, lane, step, at.received(1 - s),
                                           at.received(-s), reduced);
      if (error) co_return error;
      reduced = {};
    }
  }
  co_return Error();
}

Task<Error> ring_lanes(Call& call, CollectiveArgs args, Ring ring, std::size_t lanes) {
  std::array<Task<Error>, most_lanes> strands;
  for (std::size_t l = 0; l < lanes; ++l) {
    strands[l] = ring_lane(call, args, ring, static_cast<std::uint16_t>(l));
  }
  co_return co_await when_all(std::span(strands).first(lanes));
}

}  // namespace

// Not a coroutine: a short vector needs one strand, and so costs one coroutine frame.
Task<Error> allreduce_ring(Call& call, CollectiveArgs args) {
  const int p = call.size();
  const Blocks blocks(args.count, p);
  const std::size_t chunk = chunk_elements(args.tuning, args.type);
  const Ring ring{wrap(call.rank() + 1, p), wrap(call.rank() - 1, p), blocks, chunk,
                  chunks_in(blocks[0].size, chunk)};
  const std::size_t lanes = lanes_for(args.tuning, ring.chunks);
  args.tuning.lanes = static_cast<int>(std::max<std::size_t>(lanes, 1));
  return lanes > 1 ? ring_lanes(call, args, ring, lanes) : ring_lane(call, args, ring, 0);
}

double allreduce_ring_cost(const Shape& shape, const LinkCost& link) {
  const double p = shape.ranks;
  const double per_block = static_cast<double>(shape.bytes) / p;
  const double chunks = std::max(1.0, std::ceil(per_block / double(shape.tuning.chunk_bytes)));
  const double bytes = per_block / chunks;
  const double lanes = std::min<double>(chunks, shape.tuning.lanes);
  const double pass = 2 * (p - 1) * (link.alpha + link.beta * bytes) + (p - 1) * link.gamma * bytes;
  const double port_bound = pass + (chunks - 1) * 2 * (p - 1) * link.beta * bytes;
  const double core_bound = pass + (chunks - 1) * (p - 1) * link.gamma * bytes;
  const double lane_bound = pass * std::ceil(chunks / lanes);
  return std::max({port_bound, core_bound, lane_bound});
}

}  // namespace pith
