// Rabenseifner's allreduce: reduce-scatter by recursive halving, then allgather by recursive
// doubling, with the same partners in reverse order.
// [Thakur, Rabenseifner, Gropp 2005, section 4.5]
//
//   halving:  partners at distance Q/2, ..., 2, 1     blocks left to reduce: Q/2, ..., 2, 1
//   doubling: partners at distance 1, 2, ..., Q/2     complete blocks:       2, 4, ..., Q
//
// Q is the largest power of two up to P. Each rank r >= Q first sends its vector to rank r - Q, and
// gets the result from it at the end. The vector is cut into segments of four chunks, each of which
// goes through all rounds; each of `lanes` strands takes every lanes-th segment.
// Cost for a power of two and one segment: 2 log2(P) alpha + (P-1)/P (2 beta + gamma) n. Wins among
// many ranks between recursive doubling and the ring: fewer bytes than the former, fewer messages
// than the latter. One rank reduces each block, lower ranks first: all ranks get the same bits.
#include <cmath>

#include "collectives/typed_span.hpp"

namespace pith {

namespace {

constexpr std::size_t segment_chunks = 4;
constexpr std::uint32_t doubling_step = 100;
constexpr std::uint32_t fold_step = 200;
constexpr std::uint32_t unfold_step = 201;

// One segment, cut into Q blocks.
struct Segment {
  const CollectiveArgs& args;
  Range range;
  Blocks blocks;
  std::uint16_t lane;

  Bytes all(Bytes vector) const { return part(vector, args.type, range); }
  // Blocks first, first + 1, ..., first + n - 1.
  Bytes some(Bytes vector, int first, int n) const {
    const std::size_t begin = blocks[first].begin;
    const Range last = blocks[first + n - 1];
    return part(vector, args.type, {range.begin + begin, last.begin + last.size - begin});
  }
};

// Reduces this rank's block of the segment into recv. `have` is the vector that holds the inputs.
Task<Error> halve(Call& call, const Segment& segment, Bytes have, int q) {
  const CollectiveArgs& args = segment.args;
  Fence reduced;
  int low = 0;
  std::uint32_t step = 0;
  for (int half = q / 2; half > 0; half /= 2, ++step) {
    const bool upper = (call.rank() & half) != 0;
    const int partner = call.rank() ^ half;
    const int keep = upper ? low + half : low;
    const int give = upper ? low : low + half;
    const Bytes into = segment.some(args.recv, keep, half);
    const Bytes own = segment.some(have, keep, half);
    Expected<Borrowed> theirs = co_await call.exchange_borrow(
        partner, partner, segment.lane, step, segment.some(have, give, half), into.size, reduced);
    if (!theirs) co_return theirs.error();
    reduced = upper ? reduce(call, args, into, theirs->data, own.data)
                    : reduce(call, args, into, own.data, theirs->data);
    call.give_back(*theirs, reduced);
    have = args.recv;
    low = keep;
  }
  reduced = finish(call, args, segment.some(args.recv, low, 1), reduced);
  co_await call.until(reduced);
  co_return Error();
}

Task<Error> double_up(Call& call, const Segment& segment, int q) {
  std::uint32_t step = doubling_step;
  for (int half = 1; half < q; half *= 2, ++step) {
    const int partner = call.rank() ^ half;
    const int mine = call.rank() & -half;
    const Bytes out = segment.some(segment.args.recv, mine, half);
    const Bytes in = segment.some(segment.args.recv, mine ^ half, half);
    Error error = co_await call.exchange(partner, partner, segment.lane, step, out, in);
    if (error) co_return error;
  }
  co_return Error();
}

Task<Error> reduce_segment(Call& call, const CollectiveArgs& args, Range range,
                           std::uint16_t lane) {
  const int q = floor_power_of_two(call.size());
  const int extra = call.size() - q;
  const int rank = call.rank();
  const Segment segment{args, range, Blocks(range.size, q), lane};
  const Bytes result = segment.all(args.recv);
  if (rank >= q) {
    Error error = co_await call.send(rank - q, lane, fold_step, segment.all(args.send));
    if (error) co_return error;
    co_return co_await call.recv(rank - q, lane, unfold_step, result);
  }
  Bytes have = args.send;
  if (rank < extra) {
    Expected<Borrowed> theirs = co_await call.borrow(rank + q, lane, fold_step, result.size);
    if (!theirs) co_return theirs.error();
    const Fence reduced = reduce(call, args, result, segment.all(have).data, theirs->data);
    call.give_back(*theirs, reduced);
    co_await call.until(reduced);
    have = args.recv;
  }
  Error error = co_await halve(call, segment, have, q);
  if (error) co_return error;
  error = co_await double_up(call, segment, q);
  if (error || rank >= extra) co_return error;
  co_return co_await call.send(rank + q, lane, unfold_step, result);
}

Task<Error> segment_lane(Call& call, const CollectiveArgs& args, std::size_t lanes,
                         std::uint16_t lane) {
  const std::size_t segment = segment_chunks * chunk_elements(args.tuning, args.type);
  for (std::size_t k = lane; k < chunks_in(args.count, segment); k += lanes) {
    Error error = co_await reduce_segment(call, args, chunk_of({0, args.count}, segment, k), lane);
    if (error) co_return error;
  }
  co_return Error();
}

}  // namespace

Task<Error> allreduce_rabenseifner(Call& call, CollectiveArgs args) {
  const std::size_t segment = segment_chunks * chunk_elements(args.tuning, args.type);
  const std::size_t lanes = lanes_for(args.tuning, chunks_in(args.count, segment));
  std::array<Task<Error>, most_lanes> strands;
  for (std::size_t l = 0; l < lanes; ++l) {
    strands[l] = segment_lane(call, args, lanes, static_cast<std::uint16_t>(l));
  }
  co_return co_await when_all(std::span(strands).first(lanes));
}

double allreduce_rabenseifner_cost(const Shape& shape, const LinkCost& link) {
  if (shape.bytes == 0) return 0;  // no segment, no message
  const auto n = static_cast<double>(shape.bytes);
  const double q = floor_power_of_two(shape.ranks);
  const double segments =
      std::ceil(n / static_cast<double>(segment_chunks * shape.tuning.chunk_bytes));
  const double bytes = n / segments;
  const double lanes = std::min<double>(segments, shape.tuning.lanes);
  double wire = 2 * (q - 1) / q * link.beta * bytes;
  double work = (q - 1) / q * link.gamma * bytes;
  double pass = 2 * ceil_log2(static_cast<int>(q)) * link.alpha + wire + work;
  if (shape.ranks > static_cast<int>(q)) {
    wire += 2 * link.beta * bytes;  // one vector in and one out, which do not overlap
    work += link.gamma * bytes;
    pass += 2 * link.alpha + (2 * link.beta + link.gamma) * bytes;
  }
  return std::max({pass + (segments - 1) * wire, pass + (segments - 1) * work,
                   std::ceil(segments / lanes) * pass});
}

}  // namespace pith
