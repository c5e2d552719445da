// ExDyna and MiCRO: every rank elects in a partition of its own by a common threshold, the indices
// go to all, and all ranks sum their values at all of them.
//
//   step t:   rank r owns partition (t + r) mod N
//   rank r    elect 0 > elect 1 > ..    > add the gradient in the others' partitions
//               \ indices to all            take round 0 > sum > write
//   others        decode                    take round 1 > sum > write
//
// No index is elected twice, so traffic does not grow with N, and partitions in order are the
// union in order: nothing is sorted. Counts come with the indices; partitions and threshold of the
// next step follow from what all ranks have seen (compress/exdyna_control.hpp). A caller who adds
// to the accumulator in place has only the own partition read: 4/N bytes an element.
//
// Cost: exdyna_cost.hpp. The schemes are those of [Yoon, Oh: ExDyna, CCGrid 2024; MiCRO, HiPC
// 2023], with their threshold rules (`released` as published, `intended` as meant). The quantile
// rule, the prefix cut, rounds, coded indices and the cap of the first steps are ours.
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "collectives/dense_sum.hpp"
#include "collectives/election_message.hpp"
#include "collectives/result_writer.hpp"
#include "collectives/strands.hpp"
#include "collectives/take_values.hpp"
#include "collectives/value_sum.hpp"

namespace pith {

namespace {

constexpr std::uint16_t values_lane = 2;
constexpr std::uint16_t dense_lanes = 128;  // so many for each round, from here on

// Several where there is something to overlap. The authors' dummy is known after the last element
// only, so that their elections are one round.
std::size_t rounds_for(const Call& call, const SparseCall& args) {
  constexpr std::size_t worth = std::size_t{1} << 18;  // elements of one partition
  if (args.spec().rule != Rule::quantile) return 1;
  std::size_t all = 0;
  for (const CompressedTensor& tensor : args.tensors) all += tensor.count;
  return std::clamp<std::size_t>(all / ranks_of(call) / worth, 1, ExclusiveElection::most_rounds);
}

// --- electing ---

Task<Error> elect_round(Call& call, ExclusiveElection& election, std::size_t round) {
  // Rounds before this one never wait for anything but their turn.
  while (election.selected != round) {
    if (call.comm().revoked) co_return call.comm().revoked;
    co_await call.turn();
  }
  for (const CompressedTensor& tensor : election.args.tensors) {
    if (tensor.count == 0) continue;
    Task<Error> electing = elect(call, election, *tensor.compressor, round);
    Error error = co_await std::move(electing);
    if (error) co_return error;
  }
  ++election.selected;
  co_return co_await send_elected(call, election, round);
}

// --- adding elsewhere ---

// Adds the gradient in a range.
Task<Error> add_range(Call& call, const SparseCall& args, Compressor& compressor, Range range) {
  // Zeros, or the caller has added already; what counts as zero has to become it first.
  const bool in_place = !compressor.gradient().data && !compressor.residual_is_zero();
  if (!in_place) {
    Task<Error> adding = add_in_turns(call, args, compressor, range);
    co_return co_await std::move(adding);
  }
  if (range.size == 0) co_return Error();
  PassResult unused;
  compressor.pass(range.begin, range.size, unused);
  compressor.stats.squares_all = std::numeric_limits<double>::quiet_NaN();
  co_return Error();
}

Task<Error> add_elsewhere(Call& call, ExclusiveElection& election) {
  while (election.selected != election.rounds) {
    if (call.comm().revoked) co_return call.comm().revoked;
    co_await call.turn();
  }
  for (const CompressedTensor& tensor : election.args.tensors) {
    if (tensor.count == 0) continue;
    Compressor& compressor = *tensor.compressor;
    const std::size_t partition = own_partition(call, compressor);
    const ExdynaPartition& cut = compressor.exdyna.partition();
    const std::size_t end = cut.begin(partition) + cut.size(partition);
    for (const Range range : {Range{end, tensor.count - end}, Range{0, cut.begin(partition)}}) {
      Task<Error> adding = add_range(call, election.args, compressor, range);
      Error error = co_await std::move(adding);
      if (error) co_return error;
    }
  }
  election.added = true;
  co_return Error();
}

// --- summing ---

// What is not finite, or left something that is not, becomes zero: in the accumulator, and among
// the pairs from `begin` on.
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

// Takes a round's elements out of one accumulator: their values, as they are sent. Not `finite`
// where one was not, which only a caller's own additions can bring about; it counts as zero.
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
  Task<Error> taking = take_values(call, election.args, compressor, count, squares);
  Error error = co_await std::move(taking);
  if (error || std::isfinite(squares)) co_return error;
  finite = false;
  Task<Error> dropping = drop_nonfinite(call, election.args, compressor, begin);
  error = co_await std::move(dropping);
  co_return error;
}

// The last value of a round is no element's: it is one where a rank has found something that is
// not finite, so that all ranks learn it from the sum.
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

// One round after another, for a list grows at one end.
Task<Error> take_all(Call& call, ExclusiveElection& election, std::size_t round, bool& finite) {
  while (election.taking) {
    if (call.comm().revoked) co_return call.comm().revoked;
    co_await call.turn();
  }
  election.taking = true;
  Error error;
  for (const CompressedTensor& tensor : election.args.tensors) {
    if (tensor.count == 0) continue;
    Task<Error> taking = take(call, election, *tensor.compressor, round, finite);
    error = co_await std::move(taking);
    if (error) break;
    election.sums[round].taken_run = tensor.compressor->taken().runs() - 1;
  }
  election.taking = false;
  co_return error;
}

// This rank's values of a round, all tensors' behind each other, and the flag.
std::size_t gather(Call& call, ExclusiveElection& election, std::size_t round, bool finite) {
  const SparseCall& args = election.args;
  const std::size_t run_number = election.sums[round].taken_run;
  std::size_t count = 1;
  for (const CompressedTensor& tensor : args.tensors) {
    if (tensor.count > 0) count += tensor.compressor->taken().run(run_number).count;
  }
  const DType type = args.spec().values;
  const std::size_t unit = size_of(type);
  Scratch& values = election.sums[round].values;
  values = Scratch(call.compute(), count * unit);
  std::byte* out = values.bytes().data;
  for (const CompressedTensor& tensor : args.tensors) {
    if (tensor.count == 0) continue;
    const PairList& taken = tensor.compressor->taken();
    const SparseList run = taken.run(run_number);
    if (run.count > 0) std::memcpy(out, run.values, run.count * unit);
    out += run.count * unit;
  }
  put_flag(out, type, !finite || found_nonfinite(args));
  return count;
}

// What rounding the sums lost waits until the call is known to succeed: losses instead of an
// accumulator, and the values' own numbers instead of indices.
struct LossKeeper {
  LossKeeper(Call& call, ExclusiveElection::Sums& sums, DType type, std::size_t count)
      : numbers(call.compute(), count * sizeof(std::uint32_t)) {
    auto* number = reinterpret_cast<std::uint32_t*>(numbers.bytes().data);
    part.indices = number;
    part.count = count;
    std::iota(number, number + count, 0u);
    if (type == DType::f32) return;
    sums.losses = Scratch(call.compute(), count * sizeof(float));
    part.accumulator = reinterpret_cast<float*>(sums.losses.bytes().data);
    std::fill_n(part.accumulator, count, 0.0f);
  }
  Scratch numbers;
  ValuePart part;
};

// Calls each(tensor, range, indices, offset of its values) for the partitions of a tensor, of which
// the first begins at `offset`; returns the offset behind them.
template <class Each>
std::size_t for_each_partition(Call& call, const ExclusiveElection& election, std::size_t round,
                               const CompressedTensor& tensor, std::size_t offset, Each each) {
  for (std::size_t p = 0; p < ranks_of(call); ++p) {
    const std::size_t owner = owner_of(call, *tensor.compressor, p);
    const SparseList list = election.list(*tensor.compressor, round, owner, ranks_of(call)).run(0);
    each(election.range(*tensor.compressor, p, round), list, offset);
    offset += list.count;
  }
  return offset;
}

// Whether a tensor's result is written at the end: pairs come in order only when all rounds are
// there, and a device writes a few long pieces sooner than many short ones.
bool waits_for_all(const CompressedTensor& tensor) { return tensor.sparse.count || tensor.device; }

// Dense results are written as they come.
void write_round(Call& call, const ExclusiveElection& election, std::size_t round) {
  const DType type = election.args.spec().values;
  const std::byte* values = election.sums[round].values.bytes().data;
  std::size_t offset = 0;
  for (const CompressedTensor& tensor : election.args.tensors) {
    if (tensor.count == 0) continue;
    ResultWriter writer(call, tensor);
    const bool waits = waits_for_all(tensor);
    offset = for_each_partition(
        call, election, round, tensor, offset,
        [&](Range range, const SparseList& list, std::size_t at) {
          if (waits) return;
          writer.put(range, {list.indices, values + at * size_of(type), list.count}, type);
        });
  }
}

// Which sum the spec asks for. 16-bit values have one that rounds them once, and keeps the losses.
Reduction reduction_of(const Spec& spec) {
  return spec.values == DType::f32 ? spec.reduction : Reduction::direct;
}

Task<Error> sum_directly(Call& call, ExclusiveElection& election, std::size_t round, Bytes values) {
  const DType type = election.args.spec().values;
  const std::size_t count = values.size / size_of(type);
  const LossKeeper keeper(call, election.sums[round], type, count);
  const ValueSum sum{values.data, count,
                     type,        std::span(&keeper.part, 1),
                     values_lane, static_cast<std::uint32_t>(round)};
  Task<Error> summing = sum_values(call, sum, *election.args.traffic);
  Error error = co_await std::move(summing);
  co_return error;
}

Task<Error> reduce_round(Call& call, ExclusiveElection& election, std::size_t round) {
  for (int d = 1; d < call.size(); ++d) {
    const int from = wrap(call.rank() - d, call.size());
    Error error = co_await receive_elected(call, election, round, from);
    if (error) co_return error;
  }
  // The own strands that add never wait for anything but their turn.
  while (!election.added) {
    if (call.comm().revoked) co_return call.comm().revoked;
    co_await call.turn();
  }
  const DType type = election.args.spec().values;
  bool finite = true;
  Task<Error> taking = take_all(call, election, round, finite);
  Error taken = co_await std::move(taking);
  if (taken) co_return taken;
  const std::size_t bytes = gather(call, election, round, finite) * size_of(type);
  const Bytes values = election.sums[round].values.bytes().part(0, bytes);
  const bool directly = reduction_of(election.args.spec()) == Reduction::direct;
  const auto lanes = static_cast<std::uint16_t>(dense_lanes * (round + 1));
  Task<Error> summing = directly || call.size() == 1
                            ? sum_directly(call, election, round, values)
                            : sum_densely(call, election.args, values, lanes);
  Error error = co_await std::move(summing);
  if (error) co_return error;
  election.nonfinite |= get_flag(values.data + bytes - size_of(type), type);
  write_round(call, election, round);
  co_return error;
}

// --- the end ---

std::string_view name_of_algorithm(const Spec& spec) {
  constexpr std::array<std::string_view, 3> exdyna = {"exdyna_direct", "exdyna_ring",
                                                      "exdyna_tree"};
  constexpr std::array<std::string_view, 3> micro = {"micro_direct", "micro_ring", "micro_tree"};
  const auto way = static_cast<std::size_t>(reduction_of(spec));
  return spec.scheme == Scheme::micro ? micro[way] : exdyna[way];
}

void tell(const Call& call, const CompressedTensor& tensor) {
  CompressorStats& stats = tensor.compressor->stats;
  const ExdynaControl& control = tensor.compressor->exdyna;
  stats.threshold = control.threshold().elects();
  stats.imbalance = control.imbalance();
  tensor.compressor->elected = control.by_partition()[own_partition(call, *tensor.compressor)];
  stats.selected_union = tensor.compressor->taken().count();
  stats.algorithm = name_of_algorithm(tensor.compressor->spec());
}

// Where a tensor's values of each round begin.
using RoundOffsets = std::array<std::size_t, ExclusiveElection::most_rounds>;

void pass(Call& call, const ExclusiveElection& election, const CompressedTensor& tensor,
          RoundOffsets& offsets) {
  for (std::size_t round = 0; round < election.rounds; ++round) {
    offsets[round] = for_each_partition(call, election, round, tensor, offsets[round],
                                        [](Range, const SparseList&, std::size_t) {});
  }
}

// Partition by partition.
void write_all(Call& call, const ExclusiveElection& election, const CompressedTensor& tensor,
               const RoundOffsets& offsets, ResultWriter& writer) {
  const DType type = election.args.spec().values;
  for (std::size_t p = 0; p < ranks_of(call); ++p) {
    for (std::size_t round = 0; round < election.rounds; ++round) {
      const std::byte* values = election.sums[round].values.bytes().data;
      std::size_t at_partition = 0;
      for_each_partition(call, election, round, tensor, offsets[round],
                         [&](Range range, const SparseList& list, std::size_t at) {
                           if (at_partition++ != p) return;
                           const std::byte* const found = values + at * size_of(type);
                           writer.put(range, {list.indices, found, list.count}, type);
                         });
    }
  }
}

void keep_losses(Call& call, const ExclusiveElection& election) {
  for (std::size_t round = 0; round < election.rounds; ++round) {
    const Bytes losses = election.sums[round].losses.bytes();
    if (losses.size == 0) continue;
    std::size_t offset = 0;
    for (const CompressedTensor& tensor : election.args.tensors) {
      if (tensor.count == 0) continue;
      offset = for_each_partition(
          call, election, round, tensor, offset,
          [&](Range, const SparseList& list, std::size_t at) {
            tensor.compressor->keep_losses(
                call.host_compute(), {list.indices, losses.data + at * sizeof(float), list.count});
          });
    }
  }
}

void conclude(Call& call, const ExclusiveElection& election) {
  keep_losses(call, election);
  RoundOffsets offsets{};
  for (const CompressedTensor& tensor : election.args.tensors) {
    ResultWriter writer(call, tensor);
    const bool waited = tensor.count > 0 && waits_for_all(tensor);
    if (waited) write_all(call, election, tensor, offsets, writer);
    election.args.conclude(tensor, writer);
    if (tensor.count == 0) continue;
    pass(call, election, tensor, offsets);
    tell(call, tensor);
    tensor.compressor->exdyna.follow();
  }
}

}  // namespace

Task<Error> allreduce_exdyna(Call& call, SparseCall args) {
  for (const CompressedTensor& tensor : args.tensors) {
    if (tensor.count > 0) tensor.compressor->exdyna.begin(args.spec(), tensor.count, call.size());
  }
  Error error = co_await measure_thresholds(call, args);
  if (error) co_return error;
  ExclusiveElection election;
  election.args = args;
  election.rounds = rounds_for(call, args);
  std::array<Task<Error>, 2 * ExclusiveElection::most_rounds + 1> strands;
  for (const CompressedTensor& tensor : args.tensors) {
    for (PairList& list : tensor.compressor->received(election.rounds * ranks_of(call))) {
      list.begin(args.spec().values);
    }
  }
  for (std::size_t round = 0; round < election.rounds; ++round) {
    strands[2 * round] = strand(call, elect_round(call, election, round));
    strands[2 * round + 1] = strand(call, reduce_round(call, election, round));
  }
  strands[2 * election.rounds] = strand(call, add_elsewhere(call, election));
  error = co_await when_all(std::span(strands).first(2 * election.rounds + 1));
  if (error) co_return error;
  if (election.nonfinite && !args.spec().drops_nonfinite) {
    deliver_nan(call, args);
  } else {
    conclude(call, election);
  }
  co_return error;
}

}  // namespace pith
