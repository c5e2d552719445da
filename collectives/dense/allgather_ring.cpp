// Ring allgather: in step s every rank passes on the block that it got in step s-1.
//
// Blocks are cut into chunks; each of `lanes` strands carries every lanes-th chunk round the ring.
// Blocks of different sizes have different numbers of chunks; those that do not exist are left out,
// so that a long block moves as through a chain.
// Cost with one chunk a block of m bytes: (P-1)(alpha + beta m). Bandwidth-optimal.
#include <cmath>

#include "collectives/typed_span.hpp"

namespace pith {

namespace {

Task<Error> gather_lane(Call& call, const CollectiveArgs& args, std::uint16_t lane) {
  const int p = call.size();
  const int next = wrap(call.rank() + 1, p);
  const int previous = wrap(call.rank() - 1, p);
  const std::size_t chunk = chunk_elements(args.tuning, args.type);
  const std::size_t chunks = chunks_in(longest_block(args), chunk);
  const Range own{0, elements_in(args.send, args.type)};
  std::uint32_t step = 0;
  for (std::size_t k = lane; k < chunks; k += static_cast<std::size_t>(args.tuning.lanes)) {
    for (int s = 0; s < p - 1; ++s, ++step) {
      const auto piece = [&](int owner) {
        const Range block = recv_block(args, call.rank_at(owner));
        return part(args.recv, args.type, chunk_of(block, chunk, k));
      };
      const Bytes out = s == 0 ? part(args.send, args.type, chunk_of(own, chunk, k))
                               : piece(wrap(call.rank() - s, p));
      const Bytes in = piece(wrap(call.rank() - s - 1, p));
      Error error = co_await call.exchange(out.size > 0 ? next : no_rank,
                                           in.size > 0 ? previous : no_rank, lane, step, out, in);
      if (error) co_return error;
    }
  }
  co_return Error();
}

}  // namespace

Task<Error> allgather_ring(Call& call, CollectiveArgs args) {
  const Range own = recv_block(args, call.callers_rank());
  const Fence copied = copy(call, part(args.recv, args.type, own), args.send);
  std::array<Task<Error>, most_lanes> strands;
  const std::size_t chunk = chunk_elements(args.tuning, args.type);
  const std::size_t lanes = lanes_for(args.tuning, chunks_in(longest_block(args), chunk));
  args.tuning.lanes = static_cast<int>(lanes);
  for (std::size_t l = 0; l < lanes; ++l) {
    strands[l] = gather_lane(call, args, static_cast<std::uint16_t>(l));
  }
  Error error = co_await when_all(std::span(strands).first(lanes));
  co_await call.until(copied);
  co_return error;
}

double allgather_ring_cost(const Shape& shape, const LinkCost& link) {
  const double steps = shape.ranks - 1;
  const auto m = static_cast<double>(shape.bytes);
  const double chunks = std::max(1.0, std::ceil(m / double(shape.tuning.chunk_bytes)));
  const double bytes = m / chunks;
  const double pass = steps * (link.alpha + link.beta * bytes);
  const double port_bound = pass + (chunks - 1) * steps * link.beta * bytes;
  const double lanes = std::min<double>(chunks, shape.tuning.lanes);
  return std::max(port_bound, std::ceil(chunks / lanes) * pass);
}

}  // namespace pith
