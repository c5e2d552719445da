#include "collectives/lists/value_sum.hpp"

#include <algorithm>

#include "collectives/patterns.hpp"
#include "collectives/strands.hpp"

namespace pith {

namespace {

struct Segments {
  const ValueSum& sum;
  Blocks blocks;

  Bytes operator[](int rank) const {
    const std::size_t unit = size_of(sum.type);
    return {sum.values + blocks[rank].begin * unit, blocks[rank].size * unit};
  }
};

// Exchanges blocks with the two ranks at `distance`. Empty blocks are not sent. Both ends know the
// number of messages of a block; they have one name, since they arrive in order.
Task<Error> trade(Call& call, const ValueSum& sum, int distance, std::uint16_t lane, Bytes out,
                  Bytes into, Fence ready) {
  const int to = wrap(call.rank() + distance, call.size());
  const int from = wrap(call.rank() - distance, call.size());
  const std::size_t most = sum.most_message_bytes;
  for (std::size_t k = 0; k < chunks_in(std::max(out.size, into.size), most); ++k) {
    const Range leaves = chunk_of({0, out.size}, most, k);
    const Range comes = chunk_of({0, into.size}, most, k);
    const Bytes data = out.part(leaves.begin, leaves.size);
    const Bytes room = into.part(comes.begin, comes.size);
    Error error;
    if (data.size == 0) {
      error = co_await call.recv(from, lane, sum.step, room);
    } else if (room.size == 0) {
      error = co_await call.send(to, lane, sum.step, data, ready);
    } else {
      error = co_await call.exchange(to, from, lane, sum.step, data, room, ready);
    }
    if (error) co_return error;
  }
  co_return Error();
}

// Sums this rank's block. `gathered` has the other ranks' values of it, ordered by distance from 1
// on.
void sum_segment(Call& call, const ValueSum& sum, Range segment, std::byte* gathered) {
  const int p = call.size();
  const std::size_t unit = size_of(sum.type);
  const Scratch pointers(call.host_compute(), static_cast<std::size_t>(p) * sizeof(std::byte*));
  auto** in = reinterpret_cast<const std::byte**>(pointers.bytes().data);
  std::size_t begin = 0;
  for (const ValuePart& part : sum.parts) {
    const std::size_t from = std::max(begin, segment.begin);
    const std::size_t to = std::min(begin + part.count, segment.begin + segment.size);
    if (from < to) {
      std::byte* own = sum.values + from * unit;
      for (int r = 0; r < p; ++r) {
        const auto block = static_cast<std::size_t>(wrap(call.rank() - r, p) - 1);
        const std::size_t at = block * segment.size + from - segment.begin;
        in[r] = r == call.rank() ? own : gathered + at * unit;
      }
      call.run<SumValuesKernel>({own, in, static_cast<std::size_t>(p), to - from, sum.type,
                                 part.accumulator,
                                 part.indices ? part.indices + (from - begin) : nullptr});
    }
    begin += part.count;
  }
}

}  // namespace

Task<Error> sum_values(Call& call, ValueSum sum, Traffic& traffic) {
  const int p = call.size();
  if (p == 1 || sum.count == 0) co_return Error();
  const Segments segments{sum, Blocks(sum.count, p)};
  const Bytes own = segments[call.rank()];
  const auto others = static_cast<std::size_t>(p - 1);
  const Scratch gathered(call.compute(), std::max<std::size_t>(own.size * others, 1));
  Task<Error> scattering = with_every_other(call, [&](int distance) {
    const int to = wrap(call.rank() + distance, p);
    const std::size_t at = static_cast<std::size_t>(distance - 1) * own.size;
    const Bytes room = gathered.bytes().part(at, own.size);
    return trade(call, sum, distance, sum.lane, segments[to], room, sum.ready);
  });
  Error error = co_await std::move(scattering);
  if (error) co_return error;
  sum_segment(call, sum, segments.blocks[call.rank()], gathered.bytes().data);
  Task<Error> gathering = with_every_other(call, [&](int distance) {
    const int from = wrap(call.rank() - distance, p);
    const auto back = static_cast<std::uint16_t>(sum.lane + 1);
    return trade(call, sum, distance, back, own, segments[from], Fence());
  });
  error = co_await std::move(gathering);
  if (error) co_return error;
  const std::uint64_t all = sum.count * size_of(sum.type);
  traffic.sent += all - own.size + others * own.size;
  traffic.received += others * own.size + all - own.size;
  co_return Error();
}

}  // namespace pith
