#include "compress/topk_selector.hpp"

#include <algorithm>
#include <utility>

#include "core/clock.hpp"

namespace pith {

namespace {

std::uint32_t* indices_of(const Scratch& scratch) {
  return reinterpret_cast<std::uint32_t*>(scratch.bytes().data);
}
float* floats_of(const Scratch& scratch) { return reinterpret_cast<float*>(scratch.bytes().data); }

// Enough for a forecast that is far too low, and for few reductions of the list without one.
std::size_t room_for(std::size_t k, std::size_t count) {
  constexpr std::size_t least = std::size_t{1} << 16;
  return std::min(count, std::max(4 * k, k + least));
}

}  // namespace

TopkSelector::TopkSelector(Compressor& compressor, Compute& host, std::size_t k, bool early)
    : compressor_(compressor),
      host_(host),
      k_(k),
      early_(early),
      room_(room_for(k, compressor.count())),
      indices_(host, room_ * sizeof(std::uint32_t)),
      values_(host, room_ * sizeof(float)) {}

void TopkSelector::foresee() {
  const std::size_t count = compressor_.count();
  if (compressor_.forecast.known()) {
    bounds_ = {compressor_.forecast.low(), compressor_.forecast.high()};
  }
  const std::size_t lines = sample_elements(count) / SampleKernel::line;
  if (lines > 0) {
    const std::size_t sampled = lines * SampleKernel::line;
    const Scratch sample(host_, sampled * sizeof(float));
    host_.run<SampleKernel>({compressor_.whole_pass(), lines, count / lines, floats_of(sample)});
    const double expected = double(sampled) * double(k_) / double(count);
    bounds_ = narrow({floats_of(sample), sampled}, expected, bounds_);
  }
  if (!foreseen() || !early_) return;
  lower_indices_ = Scratch(host_, room_ * sizeof(std::uint32_t));
  lower_values_ = Scratch(host_, room_ * sizeof(float));
}

bool TopkSelector::on_course() const {
  return foreseen() && !overflowed_ && compressor_.taken().count() < k_;
}

void TopkSelector::count_in(const PassResult& result) {
  compressor_.stats.nonfinite += result.nonfinite;
  compressor_.stats.squares_all += result.squares;
}

void TopkSelector::pass(std::size_t begin, std::size_t count) {
  const Stopwatch watch(compressor_.stats.select_seconds);
  if (!std::exchange(begun_, true)) foresee();
  PassResult result;
  const AccumulateKernel::Args args = compressor_.pass(begin, count, result);
  if (!foreseen()) {
    pass_running(args, begin);
    return compressor_.taken().end_run(0);
  }
  if (on_course()) return pass_foreseen(args, begin);
  host_.run<AccumulateKernel>(args);
  count_in(result);
  compressor_.taken().end_run(0);
}

void TopkSelector::pass_foreseen(const AccumulateKernel::Args& args, std::size_t begin) {
  const std::size_t room = room_ - waiting_;
  host_.run<SelectKernel>({args, bounds_.low, static_cast<std::uint32_t>(begin),
                           waiting_indices() + waiting_, waiting_values() + waiting_, room});
  count_in(*args.result);
  overflowed_ = args.result->selected > room;
  part(std::min(args.result->selected, room));
}

// Of `count` survivors behind those that wait, the certain ones are taken.
void TopkSelector::part(std::size_t count) {
  if (!early_) {
    waiting_ += count;
    return compressor_.taken().end_run(0);
  }
  std::uint32_t* indices = waiting_indices() + waiting_;
  float* values = waiting_values() + waiting_;
  std::size_t certain = 0;
  std::size_t lower = 0;
  host_.run<SplitKernel>({indices, values, count, bounds_.high, indices_of(lower_indices_),
                          floats_of(lower_values_), &certain, &lower});
  // More than k of them: none is certain, and finish() will begin anew.
  overflowed_ = overflowed_ || compressor_.taken().count() + certain > k_;
  const std::size_t stay = overflowed_ ? certain : 0;
  take(indices, values, certain - stay);
  std::copy_n(indices_of(lower_indices_), lower, indices + stay);
  std::copy_n(floats_of(lower_values_), lower, values + stay);
  waiting_ += stay + lower;
}

// In steps that the list has room for, whatever they hold.
void TopkSelector::pass_running(AccumulateKernel::Args args, std::size_t begin) {
  for (std::size_t left = args.count; left > 0; left -= args.count) {
    if (waiting_ > k_ && room_ - waiting_ < std::min(left, room_ / 2)) keep(k_);
    args.count = std::min(left, room_ - waiting_);
    PassResult result;
    args.result = &result;
    host_.run<SelectKernel>({args, floor_, static_cast<std::uint32_t>(begin),
                             waiting_indices() + waiting_, waiting_values() + waiting_,
                             room_ - waiting_});
    count_in(result);
    waiting_ += result.selected;
    begin += args.count;
    args.accumulator += args.count;
    if (args.gradient) args.gradient += args.count * size_of(args.type);
  }
}

// The n largest of what waits; the others return to the accumulator.
void TopkSelector::keep(std::size_t n) {
  double squares = 0;
  host_.run<KeepLargestKernel>({waiting_indices(), waiting_values(), waiting_, n,
                                compressor_.accumulator(), &floor_, &squares});
  waiting_ = n;
}

void TopkSelector::take(const std::uint32_t* indices, const float* values, std::size_t count) {
  PairList& taken = compressor_.taken();
  taken.reserve(count);
  const std::size_t at = taken.count();
  std::copy_n(indices, count, taken.indices(at));
  host_.run<RoundKernel>(
      {compressor_.accumulator(), indices, values, count, taken.values(at), taken.type()});
  taken.end_run(count);
}

void TopkSelector::return_waiting() {
  if (waiting_ == 0) return;
  host_.run<ReturnKernel>(
      {compressor_.accumulator(), waiting_indices(), values_.bytes().data, waiting_, DType::f32});
  waiting_ = 0;
}

// Selects from the accumulator, to which everything has been added.
void TopkSelector::start_anew() {
  const bool enough = compressor_.taken().count() + waiting_ >= k_;
  return_waiting();
  compressor_.return_taken(host_);
  floor_ = enough ? bounds_.low : 0;
  const std::uint64_t nonfinite = compressor_.stats.nonfinite;
  const double squares = compressor_.stats.squares_all;
  PassResult unused;
  pass_running(
      {compressor_.accumulator(), nullptr, DType::f32, compressor_.count(), false, &unused}, 0);
  compressor_.stats.nonfinite = nonfinite;
  compressor_.stats.squares_all = squares;
}

bool TopkSelector::finish() {
  const Stopwatch watch(compressor_.stats.select_seconds);
  const std::size_t certain = compressor_.taken().count();
  const bool exact = on_course() && certain + waiting_ >= k_;
  if (foreseen() && !exact) start_anew();
  const std::size_t missing = std::min(exact ? k_ - certain : k_, waiting_);
  floor_ = 0;
  if (missing > 0) keep(missing);
  take(waiting_indices(), waiting_values(), missing);
  waiting_ = 0;
  compressor_.stats.threshold = floor_;
  compressor_.forecast.saw(floor_);
  return foreseen() && !exact;
}

}  // namespace pith
