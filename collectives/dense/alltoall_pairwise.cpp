// Pairwise all-to-all: in step s rank r sends to r+s and receives from r-s, so that in every step
// each rank has one peer each way.
//
// Blocks are cut into chunks. Steps do not depend on each other, so strands share the steps of all
// chunks. There are as many strands as keep `lanes` full chunks in flight; for short blocks more.
//
// Of uneven blocks a rank knows only those that it sends and gets, so that ranks may disagree. Each
// is sent with an end: a last message that is shorter than a chunk, and may be empty. So at the
// shorter end of a block that its two ranks count differently their messages differ in length,
// which is an error.
// Cost with all P-1 messages of m bytes in flight: alpha + (P-1) beta m, and what sending each but
// the first takes a core.
// Needs: send and recv must not overlap.
#include "collectives/typed_span.hpp"

namespace pith {

namespace {

// The messages of which a block consists.
std::size_t messages_of(const CollectiveArgs& args, std::size_t block, std::size_t chunk) {
  return args.uneven.used() ? block / chunk + 1 : chunks_in(block, chunk);
}

// Chunk k of each block at the same time, that of the next rank first. A rank waits only for
// messages that come before its own in this order, so that none waits for ever, however the others'
// strands are.
Task<Error> pairwise_strand(Call& call, const CollectiveArgs& args, std::size_t chunks,
                            std::size_t strands, std::size_t strand) {
  const int p = call.size();
  const auto steps = static_cast<std::size_t>(p - 1);
  const std::size_t chunk = chunk_elements(args.tuning, args.type);
  for (std::size_t i = strand; i < chunks * steps; i += strands) {
    const int s = 1 + static_cast<int>(i % steps);
    const std::size_t k = i / steps;
    const int to = wrap(call.rank() + s, p);
    const int from = wrap(call.rank() - s, p);
    const Range give = send_block(args, call.rank_at(to));
    const Range take = recv_block(args, call.rank_at(from));
    const Bytes out = part(args.send, args.type, chunk_of(give, chunk, k));
    const Bytes in = part(args.recv, args.type, chunk_of(take, chunk, k));
    Error error = co_await call.exchange(k < messages_of(args, give.size, chunk) ? to : no_rank,
                                         k < messages_of(args, take.size, chunk) ? from : no_rank,
                                         0, static_cast<std::uint32_t>(k), out, in);
    if (error) co_return error;
  }
  co_return Error();
}

// All connect at once, where they connect on demand, and not step by step.
void expect_all(const Call& call) {
  for (int rank = 0; rank < call.size(); ++rank) {
    const auto& [transport, peer] = call.route(rank);
    if (transport) transport->expect(peer);
  }
}

}  // namespace

Task<Error> alltoall_pairwise(Call& call, CollectiveArgs args) {
  const int own = call.callers_rank();
  const Fence copied = copy(call, part(args.recv, args.type, recv_block(args, own)),
                            part(args.send, args.type, send_block(args, own)));
  const std::size_t chunk = chunk_elements(args.tuning, args.type);
  const std::size_t longest = longest_block(args);
  const std::size_t chunks = messages_of(args, longest, chunk);
  if (chunks != 0) expect_all(call);
  const std::size_t strand_count =
      window(args.tuning, chunks * static_cast<std::size_t>(call.size() - 1),
             std::min(longest, chunk) * size_of(args.type));
  std::array<Task<Error>, most_window> strands;
  for (std::size_t l = 0; l < strand_count; ++l) {
    strands[l] = pairwise_strand(call, args, chunks, strand_count, l);
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
  const double sending = static_cast<double>(steps - 1) * link.message;
  return sending + std::max(link.alpha + static_cast<double>(messages) * wire, latency_bound);
}

}  // namespace pith
