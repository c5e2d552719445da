#include "frame/compressed_timing.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "frame/data.hpp"
#include "frame/watchdog.hpp"
#include "kernels/cast.hpp"
#include "machine.hpp"

namespace pith_perf {
namespace {

using pith::DType;
using pith_bench::seconds_now;

// Bytes that each rank sends in a dense float32 ring.
double dense_ring_bytes(double count, double ranks) { return 2 * (ranks - 1) / ranks * count * 4; }

double largest_of(const Team& team, double value) { return team.average(value, Average::max); }
double mean_of(const Team& team, double value) { return team.average(value, Average::mean); }

}  // namespace

CompressedTiming::CompressedTiming(const Options& options, const Team& team, Reporter* reporter)
    : options_(options),
      team_(team),
      reporter_(reporter),
      spec_(spec_to_measure(options.compress)),
      source_(options.data_folder) {
  std::size_t smallest = sizeof(float);
  for (const pithDataType_t type : options.types) smallest = std::min(smallest, size_of(type));
  const std::size_t elements = options.max_bytes / smallest + 1 + Gradients::slack();
  for (int local = 0; local < team.size(); ++local) {
    gradients_.emplace_back(elements);
    send_.emplace_back(elements * sizeof(float), options.registered);
    recv_.emplace_back(options.max_bytes + sizeof(float), options.registered);
    source_.fill(gradients_.back(), team.first_rank() + local);
  }
}

Summary CompressedTiming::run() {
  summary_.min_bandwidth = options_.min_bandwidth;
  for (const pithDataType_t type : options_.types) {
    for (const pithRedOp_t op : options_.ops) {
      for (std::size_t size = options_.min_bytes; size <= options_.max_bytes;
           size = options_.after(size)) {
        const std::size_t count = std::max<std::size_t>(size / size_of(type), 1);
        run_size({type, op, count, count * size_of(type), false});
      }
    }
  }
  summary_.bus_bandwidth /= static_cast<double>(std::max<std::int64_t>(bandwidths_, 1));
  return summary_;
}

void CompressedTiming::run_size(Case at) {
  if (reporter_ != nullptr) {
    reporter_->begin({at.bytes, at.count, type_names[at.type], op_names[at.op], -1});
  }
  for (const bool in_place : {false, true}) {
    at.in_place = in_place;
    const Measured measured = measure(at);
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
                        at.count + Gradients::slack());
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
  const double ranks = team_.ranks();
  measured.bus_bandwidth = measured.algorithm_bandwidth * 2 * (ranks - 1) / ranks;
  what.ratio = dense_ring_bytes(static_cast<double>(at.count), ranks) / what.wire_bytes;
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
  what.density = mean_of(team_, what.density);
  what.wire_bytes = mean_of(team_, what.wire_bytes);
  what.select_us = mean_of(team_, what.select_us);
  what.exchange_us = mean_of(team_, what.exchange_us);
  what.predicted_us = mean_of(team_, what.predicted_us);
  return times_us;
}

// Starts with the compressors' first call, so that residuals are known, too.
void CompressedTiming::check(const Case& at, Measured& measured) {
  constexpr int steps_least = 3;
  const Compressors compressors(spec_, team_);
  CompressedCheck reference(spec_, team_, at.count, at.type, at.op);
  const auto here = static_cast<std::size_t>(team_.size());
  std::vector<std::vector<float>> taken(here, std::vector<float>(at.count));
  std::vector<std::vector<float>> given = taken;
  Errors errors;
  for (int i = 0; i < std::max(options_.check_iters, steps_least); ++i) {
    Watchdog::rearm();
    const auto step = static_cast<std::size_t>(i);
    put_gradients(at, step);
    team_.barrier();
    call(at, compressors, step);
    for (std::size_t local = 0; local < here; ++local) {
      const auto widen = [&](const std::byte* from, std::vector<float>& to) {
        pith::kernels::cast(reinterpret_cast<std::byte*>(to.data()), DType::f32, from,
                            static_cast<DType>(at.type), at.count);
      };
      const Case apart = {at.type, at.op, at.count, at.bytes, false};
      widen(send_at(apart, static_cast<int>(local), step), taken[local]);
      widen(recv_[local].data(), given[local]);
    }
    errors.merge(
        reference.check({taken.begin(), taken.end()}, {given.begin(), given.end()}, compressors));
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
  for (int local = 0; local < team_.size(); ++local) {
    const Case apart = {at.type, at.op, at.count, at.bytes, false};
    std::memcpy(recv_[static_cast<std::size_t>(local)].data(), send_at(apart, local, step),
                at.bytes);
  }
}

void CompressedTiming::call(const Case& at, const Compressors& compressors, std::size_t step) {
  team_.each("pithAllReduceCompressed", [&](int local) {
    return pithAllReduceCompressed(send_at(at, local, step),
                                   recv_[static_cast<std::size_t>(local)].data(), at.count, at.type,
                                   at.op, compressors[local], team_.comm(local), nullptr);
  });
}

const std::byte* CompressedTiming::send_at(const Case& at, int local, std::size_t step) const {
  const auto index = static_cast<std::size_t>(local);
  if (at.in_place) return recv_[index].data();
  return send_[index].data() + Gradients::shift_of_call(step) * size_of(at.type);
}

}  // namespace pith_perf
