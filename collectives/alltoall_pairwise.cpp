// Pairwise all-to-all: in step s rank r sends to r+s and receives from r-s, so that in every step
// each rank has one peer each way.
//
// Blocks are cut into chunks; `lanes` strands each take every lanes-th chunk of all blocks.
// Cost with one chunk a block of m bytes: (P-1)(alpha + beta m).
// Needs: send and recv apart.
#include <cmath>

#include "collectives/typed_span.hpp"

namespace pith {

namespace {

Task<Error> pairwise_lane(Call& call, const CollectiveArgs& args, std::size_t lanes,
                          std::uint16_t lane) {
  const int p = call.size();
  const std::size_t chunk = chunk_elements(args.tuning, args.type);
  const std::size_t chunks = chunks_in(args.count, chunk);
  std::uint32_t step = 0;
  for (std::size_t k = lane; k < chunks; k += lanes) {
    const auto piece = [&](Bytes blocks, int rank) {
      const auto at = static_cast<std::size_t>(call.rank_at(rank));
      const Range block{at * args.count, args.count};
      return part(blocks, args.type, chunk_of(block, chunk, k));
    };
    for (int s = 1; s < p; ++s, ++step) {
      const int to = wrap(call.rank() + s, p);
      const int from = wrap(call.rank() - s, p);
      const Bytes out = piece(args.send, to);
      const Bytes in = piece(args.recv, from);
      Error error = co_await call.exchange(to, from, lane, step, out, in);
      if (error) co_return error;
    }
  }
  co_return Error();
}

}  // namespace

Task<Error> alltoall_pairwise(Call& call, CollectiveArgs args) {
  const std::size_t block = args.count * size_of(args.type);
  const std::size_t own = static_cast<std::size_t>(call.callers_rank()) * block;
  const Fence copied = copy(call, args.recv.part(own, block), args.send.part(own, block));
  std::array<Task<Error>, most_lanes> strands;
  const std::size_t lanes =
      lanes_for(args.tuning, chunks_in(args.count, chunk_elements(args.tuning, args.type)));
  for (std::size_t l = 0; l < lanes; ++l) {
    strands[l] = pairwise_lane(call, args, lanes, static_cast<std::uint16_t>(l));
  }
  Error error = co_await when_all(std::span(strands).first(lanes));
  co_await call.until(copied);
  co_return error;
}

double alltoall_pairwise_cost(const Shape& shape, const LinkCost& link) {
  if (shape.bytes == 0) return 0;  // no chunk, no message
  const double steps = shape.ranks - 1;
  const auto m = static_cast<double>(shape.bytes);
  const double chunks = std::max(1.0, std::ceil(m / double(shape.tuning.chunk_bytes)));
  const double bytes = m / chunks;
  const double lanes = std::min<double>(chunks, shape.tuning.lanes);
  const double pass = steps * (link.alpha + link.beta * bytes);
  const double port_bound = pass + (chunks - 1) * steps * link.beta * bytes;
  return std::max(port_bound, std::ceil(chunks / lanes) * pass);
}

}  // namespace pith
