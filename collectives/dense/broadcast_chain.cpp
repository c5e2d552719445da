// Pipelined chain broadcast: the vector travels from rank to rank in chunks, so that every link of
// the chain carries a different chunk at the same time.
//
//   root --c2--> root+1 --c1--> root+2 --c0--> root+3
//
// Cost with K chunks of c bytes: K beta c + alpha + (P-2)(alpha + beta c). Wins for long vectors.
// The more ranks, the shorter the chunks.
#include <cmath>

#include "collectives/dense/chain.hpp"
#include "collectives/typed_span.hpp"

namespace pith {

namespace {

// How many chunks may have arrived that have not been passed on.
constexpr std::size_t depth = 4;
using Arrived = Channel<std::uint32_t, depth>;

struct Chain {
  CollectiveArgs args;
  std::size_t chunk = 0;
  std::uint32_t chunks = 0;
  int previous = -1;
  int next = -1;  // -1: this rank is the last of the chain

  Bytes piece(Bytes memory, std::uint32_t k) const {
    return part(memory, args.type, chunk_of({0, args.count}, chunk, k));
  }
};

Task<Error> take_chunks(Call& call, const Chain& chain, Arrived& arrived) {
  for (std::uint32_t k = 0; k < chain.chunks; ++k) {
    Error error = co_await call.recv(chain.previous, 0, k, chain.piece(chain.args.recv, k));
    if (error) {
      arrived.close();
      co_return error;
    }
    if (chain.next < 0) continue;
    const bool open = co_await arrived.push(k);
    if (!open) co_return Error();
  }
  co_return Error();
}

Task<Error> pass_chunks(Call& call, const Chain& chain, Arrived& arrived) {
  for (std::uint32_t k = 0; k < chain.chunks; ++k) {
    const std::optional<std::uint32_t> got = co_await arrived.pop();
    if (!got) co_return Error();
    Error error = co_await call.send(chain.next, 0, k, chain.piece(chain.args.recv, k));
    if (error) {
      arrived.close();
      co_return error;
    }
  }
  co_return Error();
}

Task<Error> send_chunks(Call& call, const Chain& chain) {
  for (std::uint32_t k = 0; k < chain.chunks; ++k) {
    Error error = co_await call.send(chain.next, 0, k, chain.piece(chain.args.send, k));
    if (error) co_return error;
  }
  co_await call.until(copy(call, chain.args.recv, chain.args.send));
  co_return Error();
}

}  // namespace

Task<Error> broadcast_chain(Call& call, CollectiveArgs args) {
  const int p = call.size();
  const int relative = wrap(call.rank() - args.root, p);
  Tuning tuning = args.tuning;
  tuning.chunk_bytes = chain_chunk_bytes(args.count * size_of(args.type), p, tuning);
  Chain chain{args, chunk_elements(tuning, args.type)};
  chain.chunks = static_cast<std::uint32_t>(chunks_in(args.count, chain.chunk));
  if (relative != 0) chain.previous = wrap(call.rank() - 1, p);
  if (relative != p - 1) chain.next = wrap(call.rank() + 1, p);

  if (relative == 0) {
    co_return co_await send_chunks(call, chain);
  }
  Arrived arrived(call.scheduler());
  std::array<Task<Error>, 2> strands;
  strands[0] = take_chunks(call, chain, arrived);
  if (chain.next < 0) {
    co_return co_await when_all(std::span(strands).first(1));
  }
  strands[1] = pass_chunks(call, chain, arrived);
  co_return co_await when_all(strands);
}

double broadcast_chain_cost(const Shape& shape, const LinkCost& link) {
  const auto n = static_cast<double>(shape.bytes);
  if (shape.bytes == 0) return 0;  // no chunk, no message
  const std::size_t chunk_bytes = chain_chunk_bytes(shape.bytes, shape.ranks, shape.tuning);
  const double chunk = std::min(n, static_cast<double>(chunk_bytes));
  const double full = std::floor(n / chunk) * chunk;
  const double last = n - full;  // a shorter last chunk follows the full ones at every hop
  const double hops = shape.ranks - 2;
  const double full_chunks =
      link.alpha + link.beta * full + hops * (link.alpha + link.beta * chunk);
  return full_chunks + link.beta * last;
}

}  // namespace pith
