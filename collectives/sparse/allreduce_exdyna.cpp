// ExDyna and MiCRO: every rank elects by a common threshold in a partition that it alone owns. The
// indices go to all ranks, which sum their values at all of them.
//
//   step t:   rank r owns partition (t + r) mod N; a round is a part of every partition
//   rank r    elect 0 > add 0 > elect 1 > add 1 > ..    elect in the own partition,
//               \ indices to all  \ ..                  add the gradient in the others
//   others        decode > take 0 > sum > write
//                                 take 1 > sum > write
//
// No index is elected twice, so traffic does not grow with N. The lists of the partitions, one
// after another, are the union in ascending order: nothing is sorted. Counts come with the indices;
// all ranks compute the next step's partitions and threshold from them
// (compress/exdyna_control.hpp). If the caller adds to the accumulator in place, a rank reads its
// own partition only: 4/N bytes an element.
//
// Cost: exdyna_cost.hpp. The schemes are those of [Yoon, Oh: ExDyna, CCGrid 2024; MiCRO, HiPC
// 2023], with their threshold rules (`released` as published, `intended` as meant). The quantile
// rule, the prefix cut, rounds, coded indices and the cap of the first steps are ours.
#include <array>
#include <limits>
#include <optional>

#include "collectives/lists/exclusive_sum.hpp"
#include "collectives/lists/result_writer.hpp"
#include "collectives/sparse/election_message.hpp"
#include "collectives/sparse/take_values.hpp"
#include "collectives/strands.hpp"

namespace pith {

namespace {

constexpr std::size_t summing_strands = 4;

// One round for the authors' rules, since their dummy is known only after the last element.
std::size_t rounds_for(const Call& call, const SparseCall& args) {
  if (rule_of(args.spec()) != Rule::quantile) return 1;
  std::size_t all = 0;
  std::size_t tensors = 0;
  for (const CompressedTensor& tensor : args.tensors) {
    all += tensor.count;
    tensors += tensor.count > 0 ? 1 : 0;
  }
  return exclusive_rounds(all, tensors, ranks_of(call), args.chunk_bytes, call.all_views());
}

using RoundNumbers = Channel<std::size_t, ExclusiveElection::most_rounds>;

// Channels of round numbers, in order, between the strands. A strand that ends closes the channels
// that it reads from and writes to.
struct Stages {
  // Each summing strand has every fourth round.
  struct Taken {
    void close() {
      for (RoundNumbers& rounds : of_strand) rounds.close();
    }
    std::array<RoundNumbers, summing_strands> of_strand;
  };
  explicit Stages(Call& call)
      : elected(call.scheduler()),
        added(call.scheduler()),
        taken{{RoundNumbers(call.scheduler()), RoundNumbers(call.scheduler()),
               RoundNumbers(call.scheduler()), RoundNumbers(call.scheduler())}} {}

  RoundNumbers elected;  // rounds in which this rank has elected
  RoundNumbers added;    // rounds whose gradient this rank has added, in all partitions
  Taken taken;           // rounds whose values this rank has taken, at all ranks' indices
};

// --- reading the gradient ---

Task<Error> elect_round(Call& call, const ExclusiveElection& election, std::size_t round) {
  for (const CompressedTensor& tensor : election.args.tensors) {
    if (tensor.count == 0) continue;
    Error error = co_await elect(call, election, *tensor.compressor, round);
    if (error) co_return error;
  }
  co_return Error();
}

// Adds the gradient in a range.
Task<Error> add_range(Call& call, const SparseCall& args, Compressor& compressor, Range range) {
  // Nothing to add: the gradient is zero, or the caller has added it. A residual that only counts
  // as zero has to be zeroed by a pass.
  const bool in_place = !compressor.gradient().data && !compressor.residual_is_zero();
  if (!in_place) {
    co_return co_await add_in_turns(call, args, compressor, range);
  }
  if (range.size == 0) co_return Error();
  PassResult unused;
  compressor.pass(range.begin, range.size, unused);
  compressor.stats.squares_all = std::numeric_limits<double>::quiet_NaN();
  co_return Error();
}

// Adds the gradient in a round's part of the other ranks' partitions.
Task<Error> add_round(Call& call, const ExclusiveElection& election, std::size_t round) {
  const std::size_t n = ranks_of(call);
  for (const CompressedTensor& tensor : election.args.tensors) {
    if (tensor.count == 0) continue;
    Compressor& compressor = *tensor.compressor;
    const std::size_t own = own_partition(call, compressor);
    for (std::size_t d = 1; d < n; ++d) {
      const Range range = election.range(compressor, (own + d) % n, round);
      Error error = co_await add_range(call, election.args, compressor, range);
      if (error) co_return error;
    }
  }
  co_return Error();
}

// The same for all rounds at once.
Task<Error> add_elsewhere(Call& call, const ExclusiveElection& election) {
  for (const CompressedTensor& tensor : election.args.tensors) {
    if (tensor.count == 0) continue;
    Compressor& compressor = *tensor.compressor;
    const std::size_t partition = own_partition(call, compressor);
    const ExdynaPartition& cut = compressor.exdyna.partition();
    const std::size_t end = cut.begin(partition) + cut.size(partition);
    for (const Range range : {Range{end, tensor.count - end}, Range{0, cut.begin(partition)}}) {
      Error error = co_await add_range(call, election.args, compressor, range);
      if (error) co_return error;
    }
  }
  co_return Error();
}

// Elects and adds, round by round: the values of a round can be summed once its gradient has been
// added. A device reads faster than any link transfers, so it adds all rounds in two kernels.
Task<Error> read_gradients(Call& call, ExclusiveElection& election, Stages& stages) {
  const CloseAtEnd closing_elected(stages.elected);
  const CloseAtEnd closing_added(stages.added);
  const bool by_round = election.rounds > 1 && !election.args.device;
  for (std::size_t round = 0; round < election.rounds; ++round) {
    Error error = co_await elect_round(call, election, round);
    if (error) co_return error;
    const bool is_sent = co_await stages.elected.push(round);
    if (!is_sent) co_return Error();
    co_await call.turn();  // lets the indices leave meanwhile
    if (!by_round) continue;
    error = co_await add_round(call, election, round);
    if (error) co_return error;
    const bool is_summed = co_await stages.added.push(round);
    if (!is_summed) co_return Error();
  }
  if (by_round) co_return Error();
  Error error = co_await add_elsewhere(call, election);
  for (std::size_t round = 0; round < election.rounds && !error; ++round) {
    const bool is_summed = co_await stages.added.push(round);
    if (!is_summed) break;
  }
  co_return error;
}

// --- the other strands ---

Task<Error> send_rounds(Call& call, ExclusiveElection& election, Stages& stages) {
  const CloseAtEnd closing(stages.elected);
  for (;;) {
    const std::optional<std::size_t> round = co_await stages.elected.pop();
    if (!round) co_return Error();
    Error error = co_await send_elected(call, election, *round);
    if (error) co_return error;
  }
}

Task<Error> receive_round(Call& call, ExclusiveElection& election, std::size_t round) {
  for (int d = 1; d < call.size(); ++d) {
    Error error =
        co_await receive_elected(call, election, round, wrap(call.rank() - d, call.size()));
    if (error) co_return error;
  }
  co_return Error();
}

Task<Error> take_rounds(Call& call, ExclusiveElection& election, Stages& stages) {
  const CloseAtEnd closing(stages.added);
  const CloseAtEnd closing_taken(stages.taken);
  for (std::size_t round = 0; round < election.rounds; ++round) {
    Error error = co_await receive_round(call, election, round);
    if (error) co_return error;
    const std::optional<std::size_t> added = co_await stages.added.pop();
    if (!added) co_return Error();
    error = co_await take_round(call, election, round);
    if (error) co_return error;
    RoundNumbers& taken = stages.taken.of_strand[round % summing_strands];
    const bool is_summed = co_await taken.push(round);
    if (!is_summed) co_return Error();
  }
  co_return Error();
}

// --- writing ---

// Whether a tensor's result is written at the end: pairs are in order only when all rounds are
// complete, and a device writes a few long ranges faster than many short ones.
bool waits_for_all(const CompressedTensor& tensor) { return tensor.sparse.count || tensor.device; }

// Writes a round's sums to the dense results that need not wait.
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

Task<Error> sum_rounds(Call& call, ExclusiveElection& election, RoundNumbers& taken) {
  const CloseAtEnd closing(taken);
  for (;;) {
    const std::optional<std::size_t> round = co_await taken.pop();
    if (!round) co_return Error();
    Error error = co_await sum_round(call, election, *round);
    if (error) co_return error;
    write_round(call, election, *round);
    co_await call.turn();
  }
}

// --- the result ---

std::string_view name_of_algorithm(const Spec& spec) {
  constexpr std::array<std::string_view, 3> exdyna = {"exdyna_direct", "exdyna_ring",
                                                      "exdyna_tree"};
  constexpr std::array<std::string_view, 3> micro = {"micro_direct", "micro_ring", "micro_tree"};
  const auto way = static_cast<std::size_t>(reduction_of(spec));
  return spec.scheme == &micro_scheme ? micro[way] : exdyna[way];
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

// Where a tensor's values begin in each round.
using RoundOffsets = std::array<std::size_t, ExclusiveElection::most_rounds>;

void pass(Call& call, const ExclusiveElection& election, const CompressedTensor& tensor,
          RoundOffsets& offsets) {
  for (std::size_t round = 0; round < election.rounds; ++round) {
    offsets[round] = for_each_partition(call, election, round, tensor, offsets[round],
                                        [](Range, const SparseList&, std::size_t) {});
  }
}

// Writes a result, partition by partition.
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
  for (const CompressedTensor& tensor : args.tensors) {
    tensor.compressor->expect_ranges(ranks_of(call) + 1);
    for (PairList& list : tensor.compressor->received(election.rounds * ranks_of(call))) {
      list.begin(args.spec().values);
    }
  }
  Stages stages(call);
  std::array<Task<Error>, 3 + summing_strands> strands{
      strand(call, read_gradients(call, election, stages)),
      strand(call, send_rounds(call, election, stages)),
      strand(call, take_rounds(call, election, stages))};
  for (std::size_t s = 0; s < summing_strands; ++s) {
    strands[3 + s] = strand(call, sum_rounds(call, election, stages.taken.of_strand[s]));
  }
  error = co_await when_all(strands);
  if (error) co_return error;
  if (election.nonfinite && !args.spec().drops_nonfinite) {
    deliver_nan(call, args);
  } else {
    conclude(call, election);
  }
  co_return error;
}

}  // namespace pith
