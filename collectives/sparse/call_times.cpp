#include "collectives/sparse/call_times.hpp"

#include <algorithm>

#include "core/clock.hpp"

namespace pith {

namespace {

double seconds_of(std::uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

// Of the time from one call's beginning to the next one's in which no call was in progress, the
// share of the one among all elements.
double between(const CompressorStats::Begun& last, const CompressorStats::Begun& next,
               std::size_t elements) {
  if (last.at_ns == 0 || elements == 0) return 0;
  const double idle = seconds_of(next.at_ns - last.at_ns) - (next.busy_seconds - last.busy_seconds);
  return std::max(idle, 0.0) * double(elements) / double(next.elements - last.elements);
}

}  // namespace

CallTimes::CallTimes(CompressedCalls& calls, std::span<const CompressedTensor> tensors,
                     std::size_t elements, std::uint64_t now_ns)
    : calls_(calls), step_(tensors[0].compressor->step) {
  begun_ = {now_ns, calls.busy_seconds(now_ns), calls.elements() + elements};
  const CompressorStats& last = tensors[0].compressor->stats;
  before_.between_s = between(last.begun, begun_, elements);
  before_.timed = last.timed;
  if (last.timed.step + 1 == step_) before_.took_s = last.timed.seconds;
  for (const CompressedTensor& tensor : tensors) {
    const CompressorStats& its = tensor.compressor->stats;
    const bool is_last = its.next_step > 0 && its.next_step == tensor.compressor->step;
    before_.sent_is_known = before_.sent_is_known && is_last && !its.told_nan;
    before_.squares_sent += std::max(its.squares_sent - its.squares_lost, 0.0);
    before_.squares_all += its.squares_all;
  }
  calls.begin(elements, now_ns);
}

CallTimes::~CallTimes() {
  if (!ended_) calls_.end(monotonic_ns());
}

void CallTimes::end(std::span<CompressedTensor> tensors, bool failed, std::uint64_t now_ns) {
  const double own = calls_.own_seconds(now_ns);
  const double total = seconds_of(now_ns - begun_.at_ns);
  calls_.end(now_ns);
  ended_ = true;
  double select = 0;
  for (const CompressedTensor& tensor : tensors) select += tensor.compressor->stats.select_seconds;
  for (const CompressedTensor& tensor : tensors) {
    CompressorStats& stats = tensor.compressor->stats;
    stats.total_seconds = total;
    stats.exchange_seconds = std::max(total - select, 0.0);
    stats.begun = begun_;
  }
  CompressorStats::Timed& timed = tensors[0].compressor->stats.timed;
  timed = before_.timed;
  if (own_agreed_ && !failed) timed = {step_, own - *own_agreed_};
}

}  // namespace pith
