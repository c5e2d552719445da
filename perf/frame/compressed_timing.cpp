#include "frame/compressed_timing.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>

#include "frame/algorithms.hpp"
#include "frame/compressed_check.hpp"
#include "frame/data.hpp"
#include "frame/move_check.hpp"
#include "frame/watchdog.hpp"
#include "kernels/cast.hpp"
#include "machine.hpp"

namespace pith_perf {
namespace {

using pith::DType;
using pith_bench::seconds_now;

// Elements that a rank receives from the others: as many as it sends, in the mean over the ranks.
template <class BytesOf>
double received_bytes(const Collective& collective, const Place& place, const BytesOf& bytes_of) {
  double bytes = 0;
  for (const Block& block : collective.expected(place)) {
    const int others = block.source == Block::all_ranks ? place.ranks - 1
                       : block.source == place.rank     ? 0
                                                        : 1;
    bytes += others * static_cast<double>(bytes_of(block.count));
  }
  return bytes;
}

void widen(const std::byte* from, pithDataType_t type, std::vector<float>& to) {
  pith::kernels::cast(reinterpret_cast<std::byte*>(to.data()), DType::f32, from,
                      static_cast<DType>(type), to.size());
}

double largest_of(const Team& team, double value) { return team.average(value, Average::max); }
double mean_of(const Team& team, double value) { return team.average(value, Average::mean); }

}  // namespace

CompressedTiming::CompressedTiming(const Options& options, const Collective& collective,
                                   const Team& team, Reporter* reporter)
    : options_(options),
      collective_(collective),
      team_(team),
      reporter_(reporter),
      spec_(spec_to_measure(options.compress)),
      source_(options.data_folder) {
  std::size_t smallest = sizeof(float);
  for (const pithDataType_t type : options.types) smallest = std::min(smallest, size_of(type));
  // The smallest call has 16 bytes for each rank.
  const std::size_t bytes =
      std::max(options.max_bytes, 16 * static_cast<std::size_t>(team.ranks()));
  const std::size_t elements = bytes / smallest + 1 + Gradients::slack();
  for (int local = 0; local < team.size(); ++local) {
    gradients_.emplace_back(elements);
    send_.emplace_back(elements * sizeof(float), options.registered);
    recv_.emplace_back(bytes + sizeof(float), options.registered);
    source_.fill(gradients_.back(), team.first_rank() + local);
  }
}

Summary CompressedTiming::run() {
  summary_.min_bandwidth = options_.min_bandwidth;
  const std::vector<pithRedOp_t> no_ops = {pithSum};
  for (const pithDataType_t type : options_.types) {
    for (const pithRedOp_t op : collective_.has_op ? options_.ops : no_ops) {
      for (const int root : roots_of(options_, collective_, team_.ranks())) {
        run_sizes({type, op, root, {}, 0, false});
      }
    }
  }
  summary_.bus_bandwidth /= static_cast<double>(std::max<std::int64_t>(bandwidths_, 1));
  return summary_;
}

void CompressedTiming::run_sizes(Case at) {
  for (std::size_t size = options_.min_bytes; size <= options_.max_bytes;
       size = options_.after(size)) {
    run_size(sized(at, size));
  }
}

// There is at least an element, or 16 bytes for each rank.
CompressedTiming::Case CompressedTiming::sized(Case at, std::size_t bytes) const {
  const std::size_t element = size_of(at.type);
  at.counts = counts_of(collective_, std::max(bytes, element), at.type, team_.ranks());
  if (at.counts.call == 0) {
    const std::size_t least = 16 * static_cast<std::size_t>(team_.ranks());
    at.counts = counts_of(collective_, least, at.type, team_.ranks());
  }
  at.bytes = bytes_of(at.counts, at.type);
  return at;
}

void CompressedTiming::run_size(Case at) {
  if (reporter_ != nullptr) {
    reporter_->begin({at.bytes, at.counts.call, type_names[at.type],
                      collective_.has_op ? op_names[at.op] : "none",
                      collective_.has_root ? at.root : -1});
  }
  for (const bool in_place : {false, true}) {
    at.in_place = in_place && collective_.in_place;
    Measured measured = measure(at);
    if (in_place && !collective_.in_place) measured.wrong.reset();
    summary_.bus_bandwidth += measured.bus_bandwidth;
    ++bandwidths_;
    if (reporter_ != nullptr) reporter_->half(measured, in_place);
  }
  if (reporter_ != nullptr) reporter_->end();
}

Measured CompressedTiming::measure(const Case& at) {
  Watchdog::rearm();
  for (int local = 0; local < team_.size(); ++local) {
    const auto index = static_cast<std::size_t>(local);
    pith::kernels::cast(send_[index].data(), static_cast<DType>(at.type),
                        reinterpret_cast<const std::byte*>(gradients_[index].data()), DType::f32,
                        at.counts.send + Gradients::slack());
  }
  Measured measured;
  Compressed& what = measured.compressed.emplace();
  {
    const Compressors compressors(spec_, team_);
    for (int i = 0; i < options_.warmup_iters; ++i) {
      put_gradients(at, static_cast<std::size_t>(i));
      call(at, compressors, static_cast<std::size_t>(i));
    }
    const std::vector<double> times_us = time_iterations(at, compressors, what);
    double sum_us = 0;
    for (const double time : times_us) sum_us += time;
    measured.time_us = team_.average(sum_us / options_.iters, options_.average);
    if (options_.per_iter_timing) {
      measured.iterations =
          iteration_times(team_.gather_values(times_us), options_.iters, options_.per_iter_skip);
    }
  }
  measured.algorithm_bandwidth = static_cast<double>(at.bytes) / 1e3 / measured.time_us;
  measured.bus_bandwidth = measured.algorithm_bandwidth * collective_.bus_factor(team_.ranks());
  what.ratio = plain_bytes(at) / what.wire_bytes;
  if (options_.check_iters > 0) check(at, measured);
  return measured;
}

// Microseconds per call. All ranks start together, after their gradients have been prepared.
std::vector<double> CompressedTiming::time_iterations(const Case& at,
                                                      const Compressors& compressors,
                                                      Compressed& what) {
  std::vector<double> times_us;
  for (int iteration = 0; iteration < options_.iters; ++iteration) {
    const std::size_t step =
        static_cast<std::size_t>(options_.warmup_iters) + static_cast<std::size_t>(iteration);
    put_gradients(at, step);
    team_.barrier();
    const double start = seconds_now();
    call(at, compressors, step);
    times_us.push_back((seconds_now() - start) * 1e6);
    if (collective_.keeps_residual) add_statistics(compressors, what);
  }
  if (!collective_.keeps_residual) add_move(at, what);
  what.density = mean_of(team_, what.density);
  what.wire_bytes = mean_of(team_, what.wire_bytes);
  what.select_us = mean_of(team_, what.select_us);
  what.exchange_us = mean_of(team_, what.exchange_us);
  what.predicted_us = mean_of(team_, what.predicted_us);
  return times_us;
}

void CompressedTiming::add_statistics(const Compressors& compressors, Compressed& what) const {
  const double share = 1.0 / options_.iters / team_.size();
  for (int local = 0; local < team_.size(); ++local) {
    const pithCompressorStats_t stats = compressors.stats(local);
    what.density += share * stats.density;
    what.wire_bytes += share * static_cast<double>(stats.bytes_sent);
    what.select_us += share * stats.select_seconds * 1e6;
    what.exchange_us += share * stats.exchange_seconds * 1e6;
    what.predicted_us += share * stats.predicted_seconds * 1e6;
  }
  const pithCompressorStats_t all = compressors.stats(0);  // the same on all ranks
  what.ways.add(all.bypassed != 0 ? Ways{1, 1, {}, {all.algorithm}}
                                  : Ways{1, 0, {all.algorithm}, {}});
}

void CompressedTiming::add_move(const Case& at, Compressed& what) const {
  const pith::Coding coding = *coding_of(spec_);
  for (int local = 0; local < team_.size(); ++local) {
    const Place place = {team_.first_rank() + local, team_.ranks(), at.root, at.counts.call};
    what.wire_bytes +=
        received_bytes(collective_, place, [&](std::size_t count) { return coding.bytes(count); }) /
        team_.size();
  }
  what.density = 1;
  what.ways.add({options_.iters, 0, {std::string(spec_.stated().name)}, {}});
}

// What a rank sends in a plain float32 call, in the mean over the ranks: of an allreduce a ring.
double CompressedTiming::plain_bytes(const Case& at) const {
  const double ranks = team_.ranks();
  const double bytes = sizeof(float) * static_cast<double>(at.counts.call);
  if (collective_.keeps_residual) return 2 * (ranks - 1) / ranks * bytes;
  double all = 0;
  for (int rank = 0; rank < team_.ranks(); ++rank) {
    all += received_bytes(collective_, {rank, team_.ranks(), at.root, at.counts.call},
                          [](std::size_t count) { return sizeof(float) * count; });
  }
  return all / ranks;
}

// Starts with the compressors' first call, so that residuals are known, too.
void CompressedTiming::check(const Case& at, Measured& measured) {
  constexpr int steps_least = 3;
  const Compressors compressors(spec_, team_);
  std::optional<CompressedCheck> sums;
  std::optional<MoveCheck> moves;
  if (collective_.keeps_residual) {
    sums.emplace(spec_, team_, at.counts.call, at.type, at.op);
  } else {
    moves.emplace(*coding_of(spec_), collective_, at.counts);
  }
  const auto here = static_cast<std::size_t>(team_.size());
  Vectors taken(here, std::vector<float>(at.counts.send));
  Vectors given(here, std::vector<float>(at.counts.recv));
  Errors errors;
  for (int i = 0; i < std::max(options_.check_iters, steps_least); ++i) {
    Watchdog::rearm();
    const auto step = static_cast<std::size_t>(i);
    put_gradients(at, step);
    team_.barrier();
    call(at, compressors, step);
    Case apart = at;
    apart.in_place = false;
    for (int local = 0; local < team_.size(); ++local) {
      const auto index = static_cast<std::size_t>(local);
      widen(send_at(apart, local, step), at.type, taken[index]);
      widen(recv_at(at, local), at.type, given[index]);
    }
    errors.merge(moves ? moves->check(taken, given, arguments(at, 0, step), team_)
                       : sums->check({taken.begin(), taken.end()}, {given.begin(), given.end()},
                                     compressors));
  }
  measured.wrong = team_.sum(errors.wrong);
  summary_.out_of_bounds += team_.sum(errors.wrong > 0 ? 1 : 0);
  measured.compressed->largest_error = largest_of(team_, errors.largest);
  const double elements = static_cast<double>(std::max<std::size_t>(errors.elements, 1));
  measured.compressed->rms_error = std::sqrt(mean_of(team_, errors.squares / elements));
}

// A call in place overwrites the gradients, so they are copied again from their source.
void CompressedTiming::put_gradients(const Case& at, std::size_t step) {
  if (!at.in_place) return;
  Case apart = at;
  apart.in_place = false;
  for (int local = 0; local < team_.size(); ++local) {
    std::memcpy(send_at(at, local, step), send_at(apart, local, step),
                at.counts.send * size_of(at.type));
  }
}

void CompressedTiming::call(const Case& at, const Compressors& compressors, std::size_t step) {
  team_.each(collective_.program.data(), [&](int local) {
    return collective_.compressed_call(arguments(at, local, step), compressors[local]);
  });
}

CallArgs CompressedTiming::arguments(const Case& at, int local, std::size_t step) {
  const Place place = {team_.first_rank() + local, team_.ranks(), at.root, at.counts.call};
  return {send_at(at, local, step), recv_at(at, local), at.counts.call, at.type, at.op, place,
          team_.comm(local)};
}

std::byte* CompressedTiming::send_at(const Case& at, int local, std::size_t step) {
  const auto index = static_cast<std::size_t>(local);
  const auto rank = static_cast<std::size_t>(team_.first_rank()) + index;
  const std::size_t element = size_of(at.type);
  if (at.in_place) return recv_[index].data() + rank * at.counts.send_offset * element;
  return send_[index].data() + Gradients::shift_of_call(step) * element;
}

std::byte* CompressedTiming::recv_at(const Case& at, int local) {
  const auto index = static_cast<std::size_t>(local);
  const auto rank = static_cast<std::size_t>(team_.first_rank()) + index;
  const std::size_t offset = at.in_place ? rank * at.counts.recv_offset : 0;
  return recv_[index].data() + offset * size_of(at.type);
}

}  // namespace pith_perf
