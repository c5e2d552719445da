// Pipelined chain scan: every rank adds its vector to what the rank before it has combined, chunk
// by chunk, and sends that on, so that every link of the chain carries a different chunk.
//
//   0 --c2--> 0+1 --c1--> 0+1+2 --c0--> 0+1+2+3      Ranks are the caller's: operands meet in their
//                                                   order, from the left.
//
// `lanes` strands take the chunks in turn, so that one chunk is combined while others are on the
// wire.
//
// Cost with one chunk of n bytes: (P-1)(alpha + beta n + gamma n); exclusive: gamma n less. With
// chunks of c bytes the rest of the vector adds what is slower, beta or gamma, of n - c. Wins for
// long vectors: each byte crosses each link once.
#include <cmath>

#include "collectives/dense/chain.hpp"
#include "collectives/typed_span.hpp"

namespace pith {

namespace {

struct Chain {
  CollectiveArgs args;
  std::size_t chunk = 0;
  std::size_t chunks = 0;
  std::size_t lanes = 0;
  int previous = no_rank;
  int next = no_rank;

  bool is_exclusive() const { return args.collective == Collective::exscan; }
  Bytes piece(Bytes memory, std::size_t k) const {
    return part(memory, args.type, chunk_of({0, args.count}, chunk, k));
  }
};

// Of `count`, cut into nearly equal chunks of at most `most`: a short last one would go no faster.
std::size_t even_chunk(std::size_t count, std::size_t most) {
  const std::size_t chunks = std::max<std::size_t>(chunks_in(count, most), 1);
  return std::max<std::size_t>(chunks_in(count, chunks), 1);
}

// What the first rank sends are its own elements. Only an inclusive scan has a result for it.
Task<Error> send_first(Call& call, const Chain& chain, std::size_t& next) {
  for (std::size_t k = next++; k < chain.chunks; k = next++) {
    const auto lane = static_cast<std::uint16_t>(k % chain.lanes);
    Error error = co_await call.send(chain.next, lane, static_cast<std::uint32_t>(k),
                                     chain.piece(chain.args.send, k));
    if (error) co_return error;
  }
  co_return Error();
}

// `next`: the first chunk that no strand has taken.
Task<Error> combine_chunks(Call& call, const Chain& chain, std::size_t& next) {
  const bool aside = chain.is_exclusive() && chain.next != no_rank;
  const Scratch with_own(call.compute(), aside ? chain.chunk * size_of(chain.args.type) : 1);
  Fence complete;
  for (std::size_t k = next++; k < chain.chunks; k = next++) {
    const auto lane = static_cast<std::uint16_t>(k % chain.lanes);
    const auto step = static_cast<std::uint32_t>(k);
    const Bytes mine = chain.piece(chain.args.send, k);
    const Bytes result = chain.piece(chain.args.recv, k);
    Expected<Borrowed> theirs = co_await call.borrow(chain.previous, lane, step, mine.size);
    if (!theirs) {
      co_await call.until(complete);
      co_return theirs.error();
    }
    const Bytes sum = aside ? with_own.bytes().part(0, mine.size) : result;
    Fence combined;
    if (aside || !chain.is_exclusive()) {
      combined = complete = reduce(call, chain.args, sum, theirs->data, mine.data);
    }
    if (chain.is_exclusive()) complete = only_operand(call, chain.args, result, theirs->data);
    call.give_back(*theirs, complete);
    if (chain.next == no_rank) continue;
    Error error = co_await call.send(chain.next, lane, step, sum, combined);
    if (error) {
      co_await call.until(complete);
      co_return error;
    }
  }
  co_await call.until(complete);
  co_return Error();
}

Task<Error> run_chain(Call& call, CollectiveArgs args) {
  const int rank = call.callers_rank();
  Tuning tuning = args.tuning;
  tuning.chunk_bytes = chain_chunk_bytes(args.count * size_of(args.type), call.size(), tuning);
  Chain chain{args, even_chunk(args.count, chunk_elements(tuning, args.type))};
  chain.chunks = chunks_in(args.count, chain.chunk);
  chain.lanes = lanes_for(tuning, chain.chunks);
  if (rank > 0) chain.previous = call.place_of(rank - 1);
  if (rank + 1 < call.size()) chain.next = call.place_of(rank + 1);

  std::array<Task<Error>, most_lanes> strands;
  std::size_t next = 0;
  for (std::size_t l = 0; l < chain.lanes; ++l) {
    strands[l] = rank == 0 ? send_first(call, chain, next) : combine_chunks(call, chain, next);
  }
  Error error = co_await when_all(std::span(strands).first(chain.lanes));
  if (error || rank > 0 || chain.is_exclusive()) co_return error;
  co_await call.until(only_operand(call, args, args.recv, args.send.data));
  co_return Error();
}

double chain_cost(const Shape& shape, const LinkCost& link, int combining) {
  if (shape.bytes == 0) return 0;  // no chunk, no message
  const auto n = static_cast<double>(shape.bytes);
  const std::size_t most = chain_chunk_bytes(shape.bytes, shape.ranks, shape.tuning);
  const auto chunk = static_cast<double>(even_chunk(shape.bytes, most));
  const double one =
      (shape.ranks - 1) * (link.alpha + link.beta * chunk) + combining * link.gamma * chunk;
  // A single strand of an inner rank combines and sends in turn, without overlap.
  const bool alone = shape.tuning.lanes == 1 && shape.ranks > 2;
  const double wire = link.beta * (n - chunk);
  const double work = combining > 0 ? link.gamma * (n - chunk) : 0;
  return one + (alone ? wire + work : std::max(wire, work));
}

}  // namespace

Task<Error> scan_chain(Call& call, CollectiveArgs args) { return run_chain(call, args); }

Task<Error> exscan_chain(Call& call, CollectiveArgs args) { return run_chain(call, args); }

double scan_chain_cost(const Shape& shape, const LinkCost& link) {
  return chain_cost(shape, link, shape.ranks - 1);
}

double exscan_chain_cost(const Shape& shape, const LinkCost& link) {
  return chain_cost(shape, link, shape.ranks - 2);
}

}  // namespace pith
