#include "comm/choice_learning.hpp"

#include <utility>

#include "core/clock.hpp"
#include "core/log.hpp"
#include "core/run_together.hpp"

namespace pith {

namespace {

// Of one turn of the control thread.
constexpr std::size_t most_times = 4096;

}  // namespace

void ChoiceLearning::begin() {
  if (keeps_times()) times_.reserve(most_times);
}

void ChoiceLearning::add(const CollectiveArgs& args, const CallTiming& timing,
                         std::uint64_t ended_ns) {
  const auto seconds = [](std::uint64_t ns) { return static_cast<double>(ns) * 1e-9; };
  const CallPlan& plan = args.plan;
  CallTime time{
      .algorithm = &model_.algorithm(args),
      .variant = plan.variant,
      .bytes = plan.is_told ? timing.slowest.bytes : args.count * size_of(args.type),
      .seconds = plan.is_told ? timing.slowest.seconds : seconds(ended_ns - timing.begun_ns),
      .is_trial = plan.is_trial};
  const std::lock_guard lock(mutex_);
  time.gap_s = seconds(timing.begun_ns - std::exchange(last_ended_ns_, ended_ns));
  if (times_.size() < times_.capacity()) times_.push_back(time);
}

void ChoiceLearning::learn() {
  if (!keeps_times()) return;
  taken_.clear();  // what is left where there was no memory
  taken_.reserve(most_times);
  {
    const std::lock_guard lock(mutex_);
    times_.swap(taken_);
  }
  if (taken_.empty()) return;
  if (!tuner_) tuner_ = std::make_unique<Tuner>(model_);
  for (const CallTime& time : taken_) tuner_->add(time);
  taken_.clear();
  if (!model_.explains() || !model_.learns()) return (void)tuner_->take_reasons();
  for (const std::string& reason : tuner_->take_reasons()) log(LogLevel::warn, reason);
}

void ChoiceLearning::tell(std::uint64_t now_ns) {
  constexpr std::uint64_t rest_ns = 1'000'000'000;
  if (log_) log_->look(tuner_.get(), now_ns);
  if (links_) links_->look(tuner_.get(), now_ns);
  if (!observers_ || now_ns - shown_ns_ < rest_ns || !observers_->any_ready()) return;
  shown_ns_ = now_ns;
  observers_->show(choices_text(model_, hosts_, tuner_.get(), false), now_ns);
}

std::optional<std::string> ChoiceLearning::wanted(const EpochGate& gate) {
  if (!tuner_ || !model_.learns()) return std::nullopt;
  const std::uint64_t committed = gate.counts().committed;
  if (committed != committed_) holds_ = std::move(proposed_);
  committed_ = committed;
  proposed_ = tuner_->wanted().save(tuner_->start());
  if (proposed_ == holds_) return std::nullopt;
  return proposed_;
}

void ChoiceLearning::end() {
  const bool watched = observers_ && observers_->any_ready();
  if (!log_ && !links_ && !watched) return;
  static_cast<void>(without_throwing([&] {
    learn();
    if (log_) log_->end(tuner_.get());
    if (links_) links_->end(tuner_.get());
    if (watched) observers_->show(choices_text(model_, hosts_, tuner_.get(), true), monotonic_ns());
    return Error();
  }));
}

}  // namespace pith
