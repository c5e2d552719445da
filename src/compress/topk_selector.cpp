#include "compress/topk_selector.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "core/clock.hpp"
#include "core/kernel_args.hpp"

namespace pith {

namespace {

std::uint32_t* indices_of(const Scratch& scratch) {
  return reinterpret_cast<std::uint32_t*>(scratch.bytes().data);
}
float* floats_of(const Scratch& scratch) { return reinterpret_cast<float*>(scratch.bytes().data); }

// Enough for a forecast that is far too low, and for few reductions of the list without a forecast.
std::size_t room_for(std::size_t k, std::size_t count) {
  constexpr std::size_t least = std::size_t{1} << 16;
  return std::min(count, std::max(4 * k, k + least));
}

}  // namespace

TopkSelector::TopkSelector(Compressor& compressor, const VectorQueue& queue, std::size_t k,
                           bool early)
    : compressor_(compressor),
      queue_(queue),
      k_(k),
      early_(early),
      room_(room_for(k, compressor.count())),
      indices_(queue.vectors(), room_ * sizeof(std::uint32_t)),
      values_(queue.vectors(), room_ * sizeof(float)) {
  if (!queue.on_device()) return;
  reached_ = Scratch(queue.host(), sizeof(Found));
  found_ = new (reached_.bytes().data) Found;
}

Task<Error> TopkSelector::foresee() {
  const std::size_t count = compressor_.count();
  if (compressor_.forecast.known()) {
    bounds_ = {compressor_.forecast.low(), compressor_.forecast.high()};
  }
  const std::size_t lines = sample_elements(count) / SampleKernel::line;
  if (lines > 0) {
    const std::size_t sampled = lines * SampleKernel::line;
    const Scratch sample(queue_.host(), sampled * sizeof(float));
    co_await queue_.until(queue_.run<SampleKernel>(
        {compressor_.args_of(0, count), lines, count / lines, floats_of(sample)}));
    const double expected = double(sampled) * double(k_) / double(count);
    bounds_ = narrow({floats_of(sample), sampled}, expected, bounds_);
  }
  if (!foreseen() || !early_) co_return Error();
  lower_indices_ = Scratch(queue_.vectors(), room_ * sizeof(std::uint32_t));
  lower_values_ = Scratch(queue_.vectors(), room_ * sizeof(float));
  co_return Error();
}

bool TopkSelector::on_course() const {
  return foreseen() && !overflowed_ && compressor_.taken().count() < k_;
}

void TopkSelector::count_in(const PassResult& result) {
  compressor_.stats.nonfinite += result.nonfinite;
  compressor_.stats.squares_all += result.squares;
}

Task<Error> TopkSelector::passing(std::size_t begin, std::size_t count) {
  Error error = co_await looking(begin, count);
  if (error) co_return error;
  error = co_await ending_run();
  co_return error;
}

Task<Error> TopkSelector::looking(std::size_t begin, std::size_t count) {
  const Stopwatch watch(compressor_.stats.select_seconds);
  if (!std::exchange(begun_, true)) {
    Error error = co_await foresee();
    if (error) co_return error;
  }
  found_->pass = {};
  const AccumulateKernel::Args args = compressor_.pass(begin, count, found_->pass);
  if (!foreseen()) {
    co_return co_await pass_running(args, begin);
  }
  if (!on_course()) {
    looked_ = queue_.run<AccumulateKernel>(args);
    co_await queue_.until(looked_);
    count_in(found_->pass);
    co_return Error();
  }
  looked_ = select(args, bounds_.low, begin);
  co_await queue_.until(looked_);
  const std::size_t count_above = survivors();
  waiting_ += count_above;
  if (early_) unsplit_ += count_above;
  co_return Error();
}

Task<Error> TopkSelector::ending_run() {
  const Stopwatch watch(compressor_.stats.select_seconds);
  if (unsplit_ == 0) {
    compressor_.taken().end_run(0);
    co_return Error();
  }
  const std::size_t count = std::exchange(unsplit_, 0);
  waiting_ -= count;
  co_await queue_.until(split(count));
  const std::size_t sure = certain();
  co_await queue_.until(take(waiting_indices() + waiting_, waiting_values() + waiting_, sure));
  taken(sure);
  let_wait(found_->certain - sure);
  co_return Error();
}

// Appends to the waiting elements.
Fence TopkSelector::select(const AccumulateKernel::Args& args, float threshold, std::size_t begin) {
  return queue_.run<SelectKernel>({args, threshold, static_cast<std::uint32_t>(begin),
                                   waiting_indices() + waiting_, waiting_values() + waiting_,
                                   room_ - waiting_});
}

std::size_t TopkSelector::survivors() {
  count_in(found_->pass);
  const std::size_t room = room_ - waiting_;
  overflowed_ = found_->pass.selected > room;
  return std::min(found_->pass.selected, room);
}

// Partitions the last `count` survivors, which are behind the waiting elements.
Fence TopkSelector::split(std::size_t count) {
  found_->certain = found_->lower = 0;
  if (count == 0) return {};
  return queue_.run<SplitKernel>({waiting_indices() + waiting_, waiting_values() + waiting_, count,
                                  bounds_.high, indices_of(lower_indices_),
                                  floats_of(lower_values_), &found_->certain, &found_->lower});
}

// The number of certain elements; 0 if there are more than k, and finishing() will start anew.
std::size_t TopkSelector::certain() {
  overflowed_ = overflowed_ || compressor_.taken().count() + found_->certain > k_;
  return overflowed_ ? 0 : found_->certain;
}

// Appends to the waiting elements: `more` that are already in place, then those that are not
// certain.
void TopkSelector::let_wait(std::size_t more) {
  waiting_ += more;
  const std::size_t lower = found_->lower;
  copy(waiting_indices() + waiting_, indices_of(lower_indices_), lower * sizeof(std::uint32_t));
  copy(waiting_values() + waiting_, floats_of(lower_values_), lower * sizeof(float));
  waiting_ += lower;
}

// In steps for which the list has room even if every element passes.
Task<Error> TopkSelector::pass_running(AccumulateKernel::Args args, std::size_t begin) {
  args.result = &found_->pass;
  for (std::size_t left = args.count; left > 0; left -= args.count) {
    if (waiting_ > k_ && room_ - waiting_ < std::min(left, room_ / 2)) {
      co_await queue_.until(keep(k_));
      kept(k_);
    }
    args.count = std::min(left, room_ - waiting_);
    found_->pass = {};
    looked_ = select(args, floor_, begin);
    co_await queue_.until(looked_);
    count_in(found_->pass);
    waiting_ += found_->pass.selected;
    begin += args.count;
    args.accumulator += args.count;
    if (args.gradient) args.gradient += args.count * size_of(args.type);
  }
  co_return Error();
}

// Keeps the n largest of the waiting elements; the others return to the accumulator.
Fence TopkSelector::keep(std::size_t n) {
  return queue_.run<KeepLargestKernel>({waiting_indices(), waiting_values(), waiting_, n,
                                        compressor_.accumulator(), &found_->smallest,
                                        &found_->squares});
}

void TopkSelector::kept(std::size_t n) {
  floor_ = found_->smallest;
  waiting_ = n;
}

// Pairs from a device are copied once more, because a list's memory is not pinned.
Fence TopkSelector::take(const std::uint32_t* indices, const float* values, std::size_t count) {
  PairList& list = compressor_.taken();
  list.reserve(count);
  if (count == 0) return {};
  const std::size_t index_bytes = count * sizeof(std::uint32_t);
  auto* to_indices = reinterpret_cast<std::byte*>(list.indices(list.count()));
  std::byte* to_values = list.values(list.count());
  if (queue_.on_device()) {
    copied_ = Scratch(queue_.host(), index_bytes + count * size_of(list.type()));
    to_indices = copied_.bytes().data;
    to_values = to_indices + index_bytes;
  }
  copy(to_indices, indices, index_bytes);
  return queue_.run<RoundKernel>(
      {compressor_.accumulator(), indices, values, count, to_values, list.type()});
}

void TopkSelector::taken(std::size_t count) {
  PairList& list = compressor_.taken();
  if (queue_.on_device() && count > 0) {
    const std::size_t index_bytes = count * sizeof(std::uint32_t);
    const std::byte* from = copied_.bytes().data;
    std::memcpy(list.indices(list.count()), from, index_bytes);
    std::memcpy(list.values(list.count()), from + index_bytes, count * size_of(list.type()));
    copied_ = Scratch();
  }
  list.end_run(count);
}

void TopkSelector::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  if (!queue_.on_device()) return void(std::memcpy(to, from, bytes));
  queue_.run<CopyKernel>({static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes});
}

void TopkSelector::return_waiting() {
  if (waiting_ == 0) return;
  queue_.run<ReturnKernel>(
      {compressor_.accumulator(), waiting_indices(), values_.bytes().data, waiting_, DType::f32});
  waiting_ = 0;
}

bool TopkSelector::starts_anew() {
  if (std::exchange(settled_, true)) return false;
  const bool enough = compressor_.taken().count() + waiting_ >= k_;
  replaces_ = foreseen() && !(on_course() && enough);
  if (!replaces_) return false;
  return_waiting();
  compressor_.return_taken(queue_.host());
  floor_ = enough ? bounds_.low : 0;
  return true;
}

// Selects from the accumulator, which is complete; the pass's results have already been counted.
Task<Error> TopkSelector::looking_again(std::size_t begin, std::size_t count) {
  const Stopwatch watch(compressor_.stats.select_seconds);
  const std::uint64_t nonfinite = compressor_.stats.nonfinite;
  const double squares = compressor_.stats.squares_all;
  Error error = co_await pass_running(
      {compressor_.accumulator() + begin, nullptr, DType::f32, count, false, nullptr}, begin);
  compressor_.stats.nonfinite = nonfinite;
  compressor_.stats.squares_all = squares;
  co_return error;
}

Task<Error> TopkSelector::finishing() {
  if (starts_anew()) {
    Error error = co_await looking_again(0, compressor_.count());
    if (error) co_return error;
  }
  const Stopwatch watch(compressor_.stats.select_seconds);
  const std::size_t missing = std::min(k_ - compressor_.taken().count(), waiting_);
  floor_ = 0;
  if (missing > 0) {
    co_await queue_.until(keep(missing));
    kept(missing);
  }
  co_await queue_.until(take(waiting_indices(), waiting_values(), missing));
  taken(missing);
  waiting_ = 0;
  compressor_.stats.threshold = floor_;
  compressor_.forecast.saw(floor_);
  co_return Error();
}

}  // namespace pith
