#include "collectives/lists/value_sum.hpp"

#include <algorithm>

#include "collectives/lists/segment_exchange.hpp"

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

using Exchange = SegmentExchange<Segments>;

// Sums this rank's block.
void sum_segment(Call& call, const ValueSum& sum, Range segment, const Exchange& exchange) {
  const auto p = static_cast<std::size_t>(call.size());
  const std::size_t unit = size_of(sum.type);
  const Scratch pointers(call.host_compute(), p * sizeof(std::byte*));
  auto** in = reinterpret_cast<const std::byte**>(pointers.bytes().data);
  std::size_t begin = 0;
  for (const ValuePart& part : sum.parts) {
    const std::size_t from = std::max(begin, segment.begin);
    const std::size_t to = std::min(begin + part.count, segment.begin + segment.size);
    if (from < to) {
      const std::size_t at = (from - segment.begin) * unit;
      for (std::size_t r = 0; r < p; ++r) in[r] = exchange.of(static_cast<int>(r)) + at;
      call.run<SumValuesKernel>({sum.values + from * unit, in, p, to - from, sum.type,
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
  Exchange exchange(call, segments, {sum.lane, sum.step, sum.most_message_bytes});
  Task<Error> scattering = exchange.scatter(sum.ready);
  Error error = co_await std::move(scattering);
  if (error) co_return error;
  sum_segment(call, sum, segments.blocks[call.rank()], exchange);
  Task<Error> gathering = exchange.gather();
  error = co_await std::move(gathering);
  if (error) co_return error;
  const std::uint64_t bytes = exchange.bytes(sum.count * size_of(sum.type));
  traffic.sent += bytes;
  traffic.received += bytes;
  co_return Error();
}

}  // namespace pith
