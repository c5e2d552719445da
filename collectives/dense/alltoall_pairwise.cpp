// Pairwise all-to-all: in step s rank r sends to r+s and receives from r-s, so that in every step
// each rank has one peer each way.
//
// Blocks are cut into chunks. Steps do not depend on each other, so strands share the steps of all
// chunks. There are as many strands as keep `lanes` full chunks in flight; for short blocks more.
// Cost with all P-1 messages of m bytes in flight: alpha + (P-1) beta m.
// Needs: send and recv must not overlap.
#include <cmath>

#include "collectives/typed_span.hpp"

namespace pith {

namespace {

constexpr std::size_t most_strands = 32;

// How many of `messages` are in flight at once; the longest has `bytes` bytes.
std::size_t window(const Tuning& tuning, std::size_t messages, std::size_t bytes) {
  const auto lanes = static_cast<std::size_t>(std::max(1, tuning.lanes));
  const std::size_t fitting = lanes * tuning.chunk_bytes / std::max<std::size_t>(1, bytes);
  return std::min({std::max(lanes, fitting), messages, most_strands});
}

Task<Error> pairwise_strand(Call& call, const CollectiveArgs& args, std::size_t strands,
                            std::uint16_t strand) {
  const int p = call.size();
  const auto steps = static_cast<std::size_t>(p - 1);
  const std::size_t chunk = chunk_elements(args.tuning, args.type);
  const std::size_t messages = chunks_in(args.count, chunk) * steps;
  const auto piece = [&](Bytes blocks, int rank, std::size_t k) {
    const auto at = static_cast<std::size_t>(call.rank_at(rank));
    const Range block{at * args.count, args.count};
    return part(blocks, args.type, chunk_of(block, chunk, k));
  };
  std::uint32_t turn = 0;
  for (std::size_t i = strand; i < messages; i += strands, ++turn) {
    const int s = 1 + static_cast<int>(i % steps);
    const int to = wrap(call.rank() + s, p);
    const int from = wrap(call.rank() - s, p);
    const Bytes out = piece(args.send, to, i / steps);
    const Bytes in = piece(args.recv, from, i / steps);
    Error error = co_await call.exchange(to, from, strand, turn, out, in);
    if (error) co_return error;
  }
  co_return Error();
}

}  // namespace

Task<Error> alltoall_pairwise(Call& call, CollectiveArgs args) {
  const std::size_t block = args.count * size_of(args.type);
  const std::size_t own = static_cast<std::size_t>(call.callers_rank()) * block;
  const Fence copied = copy(call, args.recv.part(own, block), args.send.part(own, block));
  const std::size_t chunk = chunk_elements(args.tuning, args.type);
  const std::size_t messages =
      chunks_in(args.count, chunk) * static_cast<std::size_t>(call.size() - 1);
  const std::size_t strand_count =
      window(args.tuning, messages, std::min(args.count, chunk) * size_of(args.type));
  std::array<Task<Error>, most_strands> strands;
  for (std::size_t l = 0; l < strand_count; ++l) {
    strands[l] = pairwise_strand(call, args, strand_count, static_cast<std::uint16_t>(l));
  }
  Error error = co_await when_all(std::span(strands).first(strand_count));
  co_await call.until(copied);
  co_return error;
}

double alltoall_pairwise_cost(const Shape& shape, const LinkCost& link) {
  if (shape.bytes == 0) return 0;  // no chunk, no message
  const auto steps = static_cast<std::size_t>(shape.ranks - 1);
  const std::size_t chunks = chunks_in(shape.bytes, shape.tuning.chunk_bytes);
  const std::size_t messages = chunks * steps;
  const double wire =
      link.beta * static_cast<double>(shape.bytes) / static_cast<double>(chunks);  // of one message
  const std::size_t strands =
      window(shape.tuning, messages, std::min(shape.bytes, shape.tuning.chunk_bytes));
  const std::size_t full_rounds = (messages - 1) / strands;
  const auto rounds = static_cast<double>(full_rounds);
  const auto behind = static_cast<double>((messages - 1) % strands);
  const double latency_bound = (rounds + 1) * (link.alpha + wire) + behind * wire;
  return std::max(link.alpha + static_cast<double>(messages) * wire, latency_bound);
}

}  // namespace pith
