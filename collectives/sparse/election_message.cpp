#include "collectives/sparse/election_message.hpp"

#include <cstring>

#include "collectives/lists/index_message.hpp"
#include "collectives/lists/list_message.hpp"
#include "collectives/sparse/take_values.hpp"
#include "collectives/strands.hpp"

namespace pith {

namespace {

constexpr std::uint16_t elected_lane = 0;
constexpr std::uint16_t measure_lane = 4;
constexpr std::size_t level_bytes = MagnitudeLevels::size * sizeof(std::uint32_t);
constexpr std::size_t bins = MagnitudeHistogram::bins;

// Higher bins are for magnitudes that are not finite, which are not counted.
constexpr std::size_t finite_bins = 0x7f800000u >> MagnitudeHistogram::shift;

// One non-empty bin of a histogram on the wire; bin 0, which has the zeros, ends a histogram.
struct BinCount {
  std::uint32_t bin = 0;
  std::uint32_t count = 0;
};
constexpr std::size_t most_bin_bytes = finite_bins * sizeof(BinCount);

constexpr std::string_view unreadable = "an election that cannot be read";

std::uint32_t clipped(std::uint64_t count) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(count, ~std::uint32_t{0}));
}

bool has_levels(const ExclusiveElection& election, std::size_t round) {
  return rule_of(election.args.spec()) == Rule::quantile && round + 1 == election.rounds;
}

// One rank's share of a round: the range that it elects in and its list, for each compressor.
struct Part {
  const Call& call;
  const ExclusiveElection& election;
  std::size_t round;
  std::size_t rank;
  std::size_t ranks;

  Range range(const Compressor& compressor) const {
    const auto known = static_cast<std::size_t>(call.rank_at(static_cast<int>(rank)));
    const std::size_t partition = ExdynaControl::owned(compressor.step, known, ranks);
    return election.range(compressor, partition, round);
  }
  PairList& list(Compressor& compressor) const {
    return election.list(compressor, round, rank, ranks);
  }
  // Upper bound of the message's bytes.
  std::size_t bound() const {
    std::size_t bytes = sizeof(std::uint32_t);
    for (const CompressedTensor& tensor : election.args.tensors) {
      if (tensor.count == 0) continue;
      const std::size_t size = range(*tensor.compressor).size;
      bytes += index_bytes(size, size) + level_bytes;
    }
    return bytes;
  }
};

Part part_of(const Call& call, const ExclusiveElection& election, std::size_t round, int rank) {
  return {call, election, round, static_cast<std::size_t>(rank), ranks_of(call)};
}

ListMessage write_elected(Call& call, const Part& part) {
  ListMessage message;
  message.head = Scratch(call.compute(), part.bound());
  IndexWriter writer(call, message.head.bytes().data);
  std::uint32_t count = 0;
  for (const CompressedTensor& tensor : part.election.args.tensors) {
    if (tensor.count > 0)
      count += static_cast<std::uint32_t>(part.list(*tensor.compressor).count());
  }
  writer.put_value(count);
  for (const CompressedTensor& tensor : part.election.args.tensors) {
    if (tensor.count == 0) continue;
    writer.put(part.range(*tensor.compressor), part.list(*tensor.compressor).run(0), true);
    if (!has_levels(part.election, part.round)) continue;
    for (const std::uint64_t level : tensor.compressor->exdyna.own_levels.counts) {
      writer.put_value(clipped(level));
    }
  }
  message.head_bytes = writer.size();
  message.ready = writer.ready();
  return message;
}

bool read_levels(IndexReader& reader, MagnitudeLevels& levels) {
  for (std::uint64_t& level : levels.counts) {
    std::uint32_t count = 0;
    if (!reader.get_value(count)) return false;
    level += count;
  }
  return true;
}

bool read_elected(Call& call, const Part& part, ConstBytes bytes) {
  IndexReader reader(call, bytes);
  std::uint32_t left = 0;
  if (!reader.get_value(left) || left > reader.most()) return false;
  for (const CompressedTensor& tensor : part.election.args.tensors) {
    if (tensor.count == 0) continue;
    const Range range = part.range(*tensor.compressor);
    PairList& into = part.list(*tensor.compressor);
    const std::size_t room = std::min<std::size_t>(left, range.size);
    into.reserve(room);
    const Decoded list = reader.get(range, into.indices(), room);
    if (!list.valid) return false;
    into.end_run(list.count);
    left -= static_cast<std::uint32_t>(list.count);
    if (!has_levels(part.election, part.round)) continue;
    if (!read_levels(reader, tensor.compressor->exdyna.levels())) return false;
  }
  return left == 0 && reader.done();
}

}  // namespace

Task<Error> send_elected(Call& call, ExclusiveElection& election, std::size_t round) {
  const ListMessage message = write_elected(call, part_of(call, election, round, call.rank()));
  election.args.traffic->sent += static_cast<std::uint64_t>(call.size() - 1) * message.head_bytes;
  const ListAddress name{0, elected_lane, static_cast<std::uint32_t>(round)};
  co_return co_await send_lists_to_all(call, name, message);
}

Task<Error> receive_elected(Call& call, ExclusiveElection& election, std::size_t round, int from) {
  const Part part = part_of(call, election, round, from);
  const Scratch message(call.host_compute(), part.bound());
  const Expected<std::size_t> came = co_await call.recv_some(
      from, elected_lane, static_cast<std::uint32_t>(round), message.bytes());
  if (!came) co_return came.error();
  election.args.traffic->received += *came;
  if (!read_elected(call, part, {message.bytes().data, *came}))
    co_return malformed(call, from, unreadable);
  co_return Error();
}

namespace {

// Measures the thresholds that are not known: pools the histograms of all ranks, tensor by tensor.
class Measurement {
 public:
  Measurement(Call& call, const SparseCall& args)
      : call_(call), args_(args), pooled_(call.host_compute(), tensors() * histogram_bytes) {
    std::memset(pooled_.bytes().data, 0, tensors() * histogram_bytes);
  }

  FrameArena& frame_arena() const { return call_.frame_arena(); }

  // Adds the gradient in this rank's partitions, and writes the message with their histograms.
  Task<Error> write(ListMessage& message) {
    message.head = Scratch(call_.compute(), tensors() * most_bin_bytes);
    IndexWriter writer(call_, message.head.bytes().data);
    const Scratch memory(call_.host_compute(), sizeof(MagnitudeHistogram));
    auto* histogram = reinterpret_cast<MagnitudeHistogram*>(memory.bytes().data);
    std::uint64_t* pooled = bins_of(0);
    for (const CompressedTensor& tensor : args_.tensors) {
      if (!asked(tensor)) continue;
      *histogram = {};
      Error error = co_await add_own(*tensor.compressor, *histogram);
      if (error) co_return error;
      write_bins(writer, histogram->counts, tensor.compressor->exdyna.k());
      for (std::size_t i = 0; i < bins; ++i) pooled[i] += histogram->counts[i];
      pooled += bins;
    }
    message.head_bytes = writer.size();
    args_.traffic->sent += static_cast<std::uint64_t>(call_.size() - 1) * message.head_bytes;
    co_return Error();
  }
  std::size_t most_bytes() const { return tensors() * most_bin_bytes; }
  bool read(ConstBytes bytes) {
    args_.traffic->received += bytes.size;
    IndexReader reader(call_, bytes);
    std::uint64_t* pooled = bins_of(0);
    for (std::size_t t = 0; t < tensors(); ++t, pooled += bins) {
      for (BinCount one;;) {
        if (!reader.get_value(one) || one.bin >= finite_bins) return false;
        if (one.bin == 0) break;
        pooled[one.bin] += one.count;
      }
    }
    return reader.done();
  }
  void conclude() {
    std::size_t t = 0;
    for (const CompressedTensor& tensor : args_.tensors) {
      if (!asked(tensor)) continue;
      ExdynaControl& control = tensor.compressor->exdyna;
      control.threshold().measure(std::span<const std::uint64_t, bins>(bins_of(t++), bins),
                                  control.k());
    }
  }
  static bool asked(const CompressedTensor& tensor) {
    return tensor.count > 0 && !tensor.compressor->exdyna.threshold().known();
  }

 private:
  static constexpr std::size_t histogram_bytes = bins * sizeof(std::uint64_t);

  std::size_t tensors() const {
    return static_cast<std::size_t>(
        std::count_if(args_.tensors.begin(), args_.tensors.end(), asked));
  }
  std::uint64_t* bins_of(std::size_t t) const {
    return reinterpret_cast<std::uint64_t*>(pooled_.bytes().data) + t * bins;
  }
  Task<Error> add_own(Compressor& compressor, MagnitudeHistogram& histogram) const {
    ExdynaControl& control = compressor.exdyna;
    const std::size_t own = own_partition(call_, compressor);
    const Range range{control.partition().begin(own), control.partition().size(own)};
    const CountingInto counting(compressor, histogram);
    Error error = co_await add_in_turns(call_, args_, compressor, range);
    control.own_is_added = true;
    co_return error;
  }
  // Writes the bins from the largest magnitude down to this rank's k-th: the k-th of all ranks is
  // not smaller.
  static void write_bins(IndexWriter& writer, const std::array<std::uint64_t, bins>& counts,
                         std::size_t k) {
    std::uint64_t above = 0;
    for (std::size_t bin = finite_bins - 1; bin > 0 && above < k; --bin) {
      if (counts[bin] == 0) continue;
      writer.put_value(BinCount{static_cast<std::uint32_t>(bin), clipped(counts[bin])});
      above += counts[bin];
    }
    writer.put_value(BinCount());
  }

  Call& call_;
  const SparseCall& args_;
  Scratch pooled_;
};

Task<Error> receive_measured(Call& call, Measurement& measurement) {
  const Scratch message(call.host_compute(), measurement.most_bytes());
  for (int d = 1; d < call.size(); ++d) {
    const int from = wrap(call.rank() - d, call.size());
    const Expected<std::size_t> came =
        co_await call.recv_some(from, measure_lane, 0, message.bytes());
    if (!came) co_return came.error();
    if (!measurement.read({message.bytes().data, *came}))
      co_return malformed(call, from, unreadable);
  }
  co_return Error();
}

}  // namespace

Task<Error> measure_thresholds(Call& call, const SparseCall& args) {
  if (std::none_of(args.tensors.begin(), args.tensors.end(), Measurement::asked)) {
    co_return Error();
  }
  Measurement measurement(call, args);
  ListMessage message;
  Error error = co_await measurement.write(message);
  if (error) co_return error;
  std::array<Task<Error>, 2> strands{
      strand(call, send_lists_to_all(call, {0, measure_lane, 0}, message)),
      strand(call, receive_measured(call, measurement))};
  error = co_await when_all(strands);
  if (!error) measurement.conclude();
  co_return error;
}

}  // namespace pith
