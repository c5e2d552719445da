#include "frame/timing.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "frame/algorithms.hpp"
#include "frame/watchdog.hpp"
#include "machine.hpp"

namespace pith_perf {

using pith_bench::seconds_now;

namespace {

constexpr std::size_t slack_bytes = 16;  // so that the smallest size fits in every program

}  // namespace

Timing::Timing(const Options& options, const Collective& collective, const Team& team,
               Reporter* reporter)
    : options_(options), collective_(collective), team_(team), reporter_(reporter) {
  constexpr std::size_t largest_element = 8;
  const std::size_t bytes =
      options.max_bytes + slack_bytes + static_cast<std::size_t>(options.unalign) * largest_element;
  buffer_bytes_ = -resident_bytes();
  for (int local = 0; local < team.size(); ++local) {
    send_.emplace_back(bytes, options.registered);
    recv_.emplace_back(bytes, options.registered);
  }
  buffer_bytes_ += resident_bytes();
}

Summary Timing::run() {
  const std::vector<pithRedOp_t> no_ops = {pithSum};
  for (const pithDataType_t type : options_.types) {
    for (const pithRedOp_t op : collective_.has_op ? options_.ops : no_ops) {
      if (!is_defined(op, type)) continue;
      for (const int root : roots_of(options_, collective_, team_.ranks())) {
        Case at = {type, op, root, {}};
        run_sizes(at);
      }
    }
  }
  Summary summary;
  summary.out_of_bounds = out_of_bounds_;
  summary.bus_bandwidth =
      bandwidth_sum_ / static_cast<double>(std::max<std::int64_t>(bandwidths_, 1));
  summary.min_bandwidth = options_.min_bandwidth;
  return summary;
}

void Timing::run_sizes(Case& at) {
  Watchdog::rearm();
  team_.barrier();
  for (std::size_t size = options_.min_bytes; size <= options_.max_bytes;
       size = std::max<std::size_t>(2 * size, 1)) {
    at = sized(at, size);
    for (int i = 0; i < options_.warmup_iters; ++i) call(at, false, i);
  }
  for (int cycle = 0; cycle < options_.cycles || options_.cycles == 0; ++cycle) {
    for (std::size_t size = options_.min_bytes; size <= options_.max_bytes;
         size = options_.after(size)) {
      at = sized(at, size);
      if (reporter_ != nullptr) reporter_->begin(line_of(at));
      for (const bool in_place : {false, true}) {
        Measured measured = measure(at, in_place && collective_.in_place);
        if (in_place && !collective_.in_place) measured.wrong.reset();
        if (reporter_ != nullptr) reporter_->half(measured, in_place);
      }
      if (reporter_ != nullptr) reporter_->end();
      if (options_.resources) count_resources(at);
    }
  }
}

Line Timing::line_of(const Case& at) const {
  const pithRedOp_t op = collective_.has_op ? at.op : pithSum;
  return {at.bytes,
          at.counts.call,
          type_names[at.type],
          collective_.has_op ? op_names[at.op] : "none",
          collective_.has_root ? at.root : -1,
          algorithm_of(collective_, at.counts, at.type, op, team_.comm(0), team_.ranks())};
}

Timing::Case Timing::sized(Case at, std::size_t bytes) const {
  at.counts = counts_of(collective_, bytes, at.type, team_.ranks());
  at.bytes = bytes_of(at.counts, at.type);
  return at;
}

Measured Timing::measure(const Case& at, bool in_place) {
  Watchdog::rearm();
  if (options_.check_iters > 0) fill_buffers(at, in_place, ++rounds_);
  call(at, in_place, 0);
  team_.barrier();
  const double seconds = team_.average(time_iterations(at, in_place), options_.average);
  team_.barrier();
  Measured measured;
  measured.time_us = seconds * 1e6;
  measured.algorithm_bandwidth = static_cast<double>(at.bytes) / 1e9 / seconds;
  measured.bus_bandwidth = measured.algorithm_bandwidth * collective_.bus_factor(team_.ranks());
  if (options_.per_iter_timing) {
    measured.iterations =
        iteration_times(team_.gather_values(iteration_us_), options_.iters, options_.per_iter_skip);
  }
  measured.wrong = check(at, in_place);
  bandwidth_sum_ += measured.bus_bandwidth;
  ++bandwidths_;
  return measured;
}

// Seconds per call. Calls on host memory are complete on return, so nothing has to be awaited at
// the end.
double Timing::time_iterations(const Case& at, bool in_place) {
  const bool apart = options_.blocking == Blocking::barrier_apart;
  double timed = 0;
  double start = seconds_now();
  double last = start;
  iteration_us_.clear();
  for (int iteration = 0; iteration < options_.iters; ++iteration) {
    if (options_.agg_iters > 1) must(pithGroupStart(), "pithGroupStart");
    for (int inner = 0; inner < options_.agg_iters; ++inner) {
      call(at, in_place, iteration * options_.agg_iters + inner);
    }
    if (options_.agg_iters > 1) must(pithGroupEnd(), "pithGroupEnd");
    if (options_.per_iter_timing) {
      const double now = seconds_now();
      iteration_us_.push_back((now - last) * 1e6);
      last = now;
    }
    if (!apart) continue;
    timed += (options_.per_iter_timing ? last : seconds_now()) - start;
    team_.barrier();
    start = last = seconds_now();
  }
  if (!apart) timed = seconds_now() - start;
  return timed / options_.iters / options_.agg_iters;
}

// The number of wrong elements on all ranks; empty if not checked.
std::optional<std::int64_t> Timing::check(const Case& at, bool in_place) {
  if (options_.check_iters == 0) return std::nullopt;
  std::int64_t wrong = 0;
  for (int i = 0; i < options_.check_iters && wrong == 0; ++i) {
    Watchdog::rearm();
    fill_buffers(at, in_place, ++rounds_);
    call(at, in_place, 0);
    const std::int64_t mine = count_wrong(at, in_place, rounds_);
    wrong = team_.sum(mine);
    if (mine > wrong) throw std::runtime_error("wrong data, and the ranks disagree on how many");
    out_of_bounds_ += team_.sum(mine > 0 ? 1 : 0);
  }
  return wrong;
}

void Timing::count_resources(const Case& at) {
  Watchdog::rearm();
  team_.barrier();
  int iteration = 0;
  Usage usage = usage_of(options_.iters, [&] { call(at, false, iteration++); });
  usage.bytes = at.bytes;
  usage.scratch_bytes = resident_bytes();
  const double ranks = team_.size();
  for (double* value : {&usage.allocations, &usage.system_calls, &usage.waiting_calls}) {
    if (*value > 0) *value /= ranks;
  }
  usage_.push_back(usage);
}

std::vector<Usage> Timing::usage(std::int64_t resident_before) const {
  std::vector<Usage> all;
  for (Usage line : usage_) {
    const bool known = line.scratch_bytes >= 0 && resident_before >= 0;
    const std::int64_t taken = line.scratch_bytes - resident_before - buffer_bytes_;
    // The kernel divides a shared page evenly among those who have touched it, so only the sum over
    // all ranks is meaningful.
    const auto ranks = static_cast<std::int64_t>(team_.ranks());
    const std::int64_t all_taken = team_.sum(known ? taken : std::numeric_limits<int>::min());
    line.scratch_bytes = all_taken < 0 ? -1 : all_taken / ranks;
    const std::vector<Usage> mine(static_cast<std::size_t>(team_.size()), line);
    const std::vector<Usage> lines = team_.gather(std::span<const Usage>(mine));
    all.insert(all.end(), lines.begin(), lines.end());
  }
  return all;
}

void Timing::call(const Case& at, bool in_place, int iteration) {
  // As in nccl-tests, calls move through the buffers, so that small sizes are not always in a
  // cache.
  const std::size_t steps = at.bytes > 0 ? options_.max_bytes / at.bytes : 1;
  const std::size_t shift =
      at.bytes * (static_cast<std::size_t>(iteration) % std::max<std::size_t>(steps, 1));
  team_.each(collective_.program.data(), [&](int local) {
    CallArgs args = {send_at(local, at, in_place) + shift,
                     recv_at(local, at, in_place) + shift,
                     at.counts.call,
                     at.type,
                     at.op,
                     place_of(at, local),
                     team_.comm(local)};
    return at.op == mulsum ? call_premultiplied(args) : collective_.call(args);
  });
  if (options_.blocking == Blocking::barrier) team_.barrier();
}

// The operation exists only during the call, as in nccl-tests.
pithResult_t Timing::call_premultiplied(CallArgs args) const {
  std::array<std::byte, 8> scalar = premultiplier(args.type, args.place.rank);
  const pithResult_t made = pithRedOpCreatePreMulSum(&args.op, scalar.data(), args.type,
                                                     pithScalarHostImmediate, args.comm);
  if (made != pithSuccess) return made;
  const pithResult_t called = collective_.call(args);
  const pithResult_t freed = pithRedOpDestroy(args.op, args.comm);
  return called != pithSuccess ? called : freed;
}

void Timing::fill_buffers(const Case& at, bool in_place, unsigned number) {
  // All ranks must have left the last call before any memory changes.
  team_.barrier();
  const std::size_t element = size_of(at.type);
  for (int local = 0; local < team_.size(); ++local) {
    std::memset(recv_at(local, at, false), 0xa5, at.counts.recv * element);
    fill(send_at(local, at, in_place), at.counts.send, team_.first_rank() + local, 0,
         round_of(at, number));
  }
  team_.barrier();
}

std::int64_t Timing::count_wrong(const Case& at, bool in_place, unsigned number) const {
  const Round round = round_of(at, number);
  const std::size_t element = size_of(at.type);
  std::int64_t wrong = 0;
  for (int local = 0; local < team_.size(); ++local) {
    const std::byte* const result = recv_at(local, at, in_place);
    for (const Block& block : collective_.expected(place_of(at, local))) {
      const std::byte* const data = result + block.offset * element;
      wrong += block.source == Block::all_ranks
                   ? count_not_reduced(data, block.count, block.first, round)
                   : count_not_of(data, block.count, block.source, block.first, round);
    }
  }
  return wrong;
}

Round Timing::round_of(const Case& at, unsigned number) const {
  Round round = {at.type, std::nullopt, team_.ranks(), number};
  if (collective_.has_op) round.op = at.op;
  return round;
}

Place Timing::place_of(const Case& at, int local) const {
  return {team_.first_rank() + local, team_.ranks(), at.root, at.counts.call};
}

std::byte* Timing::send_at(int local, const Case& at, bool in_place) const {
  const auto index = static_cast<std::size_t>(local);
  const std::size_t element = size_of(at.type);
  const std::size_t skipped = static_cast<std::size_t>(options_.unalign) * element;
  if (!in_place) return send_[index].data() + skipped;
  const auto rank = static_cast<std::size_t>(team_.first_rank()) + index;
  return recv_[index].data() + skipped + rank * at.counts.send_offset * element;
}

std::byte* Timing::recv_at(int local, const Case& at, bool in_place) const {
  const auto index = static_cast<std::size_t>(local);
  const std::size_t element = size_of(at.type);
  const std::size_t skipped = static_cast<std::size_t>(options_.unalign) * element;
  const auto rank = static_cast<std::size_t>(team_.first_rank()) + index;
  const std::size_t offset = in_place ? rank * at.counts.recv_offset * element : 0;
  return recv_[index].data() + skipped + offset;
}

}  // namespace pith_perf
