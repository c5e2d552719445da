// Ring reduce-scatter: block b starts at rank b+1, is reduced by every rank that it passes, and
// arrives complete at rank b.
//
//   step s:  rank r sends its partial block r-1-s to r+1, gets block r-2-s from r-1 and reduces it
//
// Blocks are cut into chunks; each of `lanes` strands carries every lanes-th chunk round the ring
// and keeps partial sums in one chunk of scratch. Blocks of different sizes have different numbers
// of chunks; those that do not exist are left out, so that a long block moves as through a chain.
// Bandwidth-optimal [Patarasu, Yuan 2009].
// Cost with one chunk a block of m bytes: (P-1)(alpha + beta m + gamma m). Wins for long vectors.
#include <cmath>

#include "collectives/typed_span.hpp"

namespace pith {

namespace {

Task<Error> ring_lane(Call& call, const CollectiveArgs& args, std::size_t lanes,
                      std::uint16_t lane) {
  const int p = call.size();
  const int next = wrap(call.rank() + 1, p);
  const int previous = wrap(call.rank() - 1, p);
  const std::size_t chunk = chunk_elements(args.tuning, args.type);
  const std::size_t chunks = chunks_in(longest_block(args), chunk);
  const Range whole{0, elements_in(args.recv, args.type)};
  const Scratch partial(call.compute(), chunk * size_of(args.type));
  Fence complete;
  std::uint32_t step = 0;
  for (std::size_t k = lane; k < chunks; k += lanes) {
    const Bytes result = part(args.recv, args.type, chunk_of(whole, chunk, k));
    const auto mine = [&](int owner) {
      const Range block = send_block(args, call.rank_at(owner));
      return part(args.send, args.type, chunk_of(block, chunk, k));
    };
    Fence reduced;
    Bytes sum;  // of the block that is sent next
    for (int s = 0; s < p - 1; ++s, ++step) {
      const Bytes out = s == 0 ? mine(previous) : sum;
      const Bytes own = mine(wrap(call.rank() - 2 - s, p));
      Expected<Borrowed> theirs = co_await call.exchange_borrow(out.size > 0 ? next : no_rank,
                                                                own.size > 0 ? previous : no_rank,
                                                                lane, step, out, own.size, reduced);
      if (!theirs) {
        co_await call.until(complete);
        co_return theirs.error();
      }
      sum = s == p - 2 ? result : partial.bytes().part(0, own.size);
      if (own.size == 0) continue;
      reduced = reduce(call, args, sum, theirs->data, own.data);
      call.give_back(*theirs, reduced);
    }
    if (result.size > 0) complete = finish(call, args, result, reduced);
  }
  co_await call.until(complete);
  co_return Error();
}

}  // namespace

Task<Error> reduce_scatter_ring(Call& call, CollectiveArgs args) {
  std::array<Task<Error>, most_lanes> strands;
  const std::size_t chunk = chunk_elements(args.tuning, args.type);
  const std::size_t lanes = lanes_for(args.tuning, chunks_in(longest_block(args), chunk));
  for (std::size_t l = 0; l < lanes; ++l) {
    strands[l] = ring_lane(call, args, lanes, static_cast<std::uint16_t>(l));
  }
  co_return co_await when_all(std::span(strands).first(lanes));
}

double reduce_scatter_ring_cost(const Shape& shape, const LinkCost& link) {
  if (shape.bytes == 0) return 0;  // no chunk, no message
  const double steps = shape.ranks - 1;
  const auto m = static_cast<double>(shape.bytes);
  const double chunks = std::max(1.0, std::ceil(m / double(shape.tuning.chunk_bytes)));
  const double bytes = m / chunks;
  const double lanes = std::min<double>(chunks, shape.tuning.lanes);
  const double work = link.gamma * bytes;
  // A strand starts its next chunk without waiting for the last reduction of this one.
  const double pass = steps * (link.alpha + link.beta * bytes + work) - work;
  const double port_bound = link.alpha + steps * chunks * link.beta * bytes + work;
  const double core_bound = link.alpha + link.beta * bytes + steps * chunks * work;
  return std::max({port_bound, core_bound, std::ceil(chunks / lanes) * pass + work});
}

}  // namespace pith
