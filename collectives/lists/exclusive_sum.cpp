#include "collectives/lists/exclusive_sum.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "collectives/lists/value_sum.hpp"
#include "collectives/sparse/dense_sum.hpp"
#include "collectives/sparse/take_values.hpp"

namespace pith {

namespace {

constexpr std::uint16_t sums_lane = 2;
constexpr std::uint16_t dense_lanes = 128;  // lanes a round; the first round's begin here

// --- taking ---

// Zeroes elements that are not finite, or whose remainder in the accumulator is not: in the
// accumulator, and among the pairs from `begin` on.
Task<Error> drop_nonfinite(Call& call, const SparseCall& args, Compressor& compressor,
                           std::size_t begin) {
  const VectorQueue queue = args.queue(call);
  PairList& taken = compressor.taken();
  const std::size_t count = taken.count() - begin;
  const std::size_t index_bytes = count * sizeof(std::uint32_t);
  const Scratch memory(queue.host(), index_bytes + count * sizeof(float));
  auto* indices = reinterpret_cast<std::uint32_t*>(memory.bytes().data);
  std::byte* left = memory.bytes().data + index_bytes;
  std::copy_n(taken.indices(begin), count, indices);
  const Answer<double> unused(queue);
  float* accumulator = compressor.accumulator();
  co_await queue.until(
      queue.run<TakeKernel>({accumulator, indices, count, left, DType::f32, &*unused}));
  for (std::size_t i = 0; i < count; ++i) {
    float one = 0;
    std::memcpy(&one, left + i * sizeof one, sizeof one);
    if (std::isfinite(one)) continue;
    std::memset(left + i * sizeof one, 0, sizeof one);
    std::memset(taken.values(begin + i), 0, size_of(taken.type()));
    ++compressor.stats.nonfinite;
  }
  co_await queue.until(queue.run<ReturnKernel>({accumulator, indices, left, count, DType::f32}));
  co_return Error();
}

// Takes the values of a round's elements out of one accumulator. Clears `finite` if one is not
// finite, which only a caller that adds to the accumulator in place can cause; it then counts as
// zero.
Task<Error> take(Call& call, const ExclusiveElection& election, Compressor& compressor,
                 std::size_t round, bool& finite) {
  PairList& taken = compressor.taken();
  const std::size_t n = ranks_of(call);
  const std::size_t begin = taken.count();
  std::size_t room = 0;
  for (std::size_t r = 0; r < n; ++r) room += election.list(compressor, round, r, n).count();
  taken.reserve(room);
  std::size_t count = 0;
  for (std::size_t p = 0; p < n; ++p) {
    const std::size_t owner = owner_of(call, compressor, p);
    const SparseList list = election.list(compressor, round, owner, n).run(0);
    compressor.exdyna.count(p, {list.indices, list.count});
    std::copy_n(list.indices, list.count, taken.indices(begin + count));
    count += list.count;
  }
  double squares = 0;
  Error error = co_await take_values(call, election.args, compressor, count, squares);
  if (error || std::isfinite(squares)) co_return error;
  finite = false;
  error = co_await drop_nonfinite(call, election.args, compressor, begin);
  co_return error;
}

// The last value of a round is a flag and no element: one on ranks that have found something that
// is not finite, so that all ranks learn it from the sum.
void put_flag(std::byte* value, DType type, bool flag) {
  std::memset(value, 0, size_of(type));
  const float one = 1;
  const std::uint16_t narrow = type == DType::bf16 ? 0x3f80 : 0x3c00;
  if (!flag) return;
  if (type == DType::f32) return void(std::memcpy(value, &one, sizeof one));
  std::memcpy(value, &narrow, sizeof narrow);
}
bool get_flag(const std::byte* value, DType type) {
  const auto is_zero = [](std::byte b) { return b == std::byte{0}; };
  return !std::all_of(value, value + size_of(type), is_zero);
}

// Concatenates the taken values of all tensors, and the flag.
void gather(Call& call, ExclusiveElection& election, std::size_t round, bool finite) {
  const SparseCall& args = election.args;
  ExclusiveElection::Sums& sums = election.sums[round];
  sums.count = 1;
  for (const CompressedTensor& tensor : args.tensors) {
    if (tensor.count > 0) sums.count += tensor.compressor->taken().run(round).count;
  }
  const DType type = args.spec().values;
  const std::size_t unit = size_of(type);
  sums.values = Scratch(call.compute(), sums.count * unit);
  std::byte* out = sums.values.bytes().data;
  for (const CompressedTensor& tensor : args.tensors) {
    if (tensor.count == 0) continue;
    const SparseList run = tensor.compressor->taken().run(round);
    if (run.count == 0) continue;
    sums.ready = call.run<CopyKernel>({out, run.values, run.count * unit});
    out += run.count * unit;
  }
  put_flag(out, type, !finite || found_nonfinite(args));
}

// --- summing ---

// Keeps what rounding the sums loses until the call is known to succeed: in `losses` instead of an
// accumulator, by position instead of by index.
struct LossKeeper {
  LossKeeper(Call& call, ExclusiveElection::Sums& sums, DType type)
      : numbers(call.compute(), sums.count * sizeof(std::uint32_t)) {
    auto* number = reinterpret_cast<std::uint32_t*>(numbers.bytes().data);
    part.indices = number;
    part.count = sums.count;
    std::iota(number, number + sums.count, 0u);
    if (type == DType::f32) return;
    sums.losses = Scratch(call.compute(), sums.count * sizeof(float));
    part.accumulator = reinterpret_cast<float*>(sums.losses.bytes().data);
    std::fill_n(part.accumulator, sums.count, 0.0f);
  }
  Scratch numbers;
  ValuePart part;
};

Task<Error> sum_directly(Call& call, ExclusiveElection& election, std::size_t round) {
  ExclusiveElection::Sums& sums = election.sums[round];
  const DType type = election.args.spec().values;
  const LossKeeper keeper(call, sums, type);
  ValueSum sum;
  sum.values = sums.values.bytes().data;
  sum.count = sums.count;
  sum.type = type;
  sum.parts = std::span(&keeper.part, 1);
  sum.lane = sums_lane;
  sum.step = static_cast<std::uint32_t>(round);
  sum.ready = sums.ready;
  Error error = co_await sum_values(call, sum, *election.args.traffic);
  co_return error;
}

}  // namespace

Task<Error> take_round(Call& call, ExclusiveElection& election, std::size_t round) {
  bool finite = true;
  for (const CompressedTensor& tensor : election.args.tensors) {
    if (tensor.count == 0) continue;
    Error error = co_await take(call, election, *tensor.compressor, round, finite);
    if (error) co_return error;
  }
  gather(call, election, round, finite);
  co_return Error();
}

Task<Error> sum_round(Call& call, ExclusiveElection& election, std::size_t round) {
  const ExclusiveElection::Sums& sums = election.sums[round];
  const DType type = election.args.spec().values;
  const bool directly = reduction_of(election.args.spec()) == Reduction::direct;
  Error error;
  if (directly || call.size() == 1) {
    error = co_await sum_directly(call, election, round);
  } else {
    co_await call.until(sums.ready);
    const Bytes values = sums.values.bytes().part(0, sums.count * size_of(type));
    const auto lanes = static_cast<std::uint16_t>(dense_lanes * (round + 1));
    error = co_await sum_densely(call, election.args, values, lanes);
  }
  if (error) co_return error;
  const std::byte* flag = sums.values.bytes().data + (sums.count - 1) * size_of(type);
  election.nonfinite |= get_flag(flag, type);
  co_return error;
}

}  // namespace pith
