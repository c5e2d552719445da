#include "streams/stream_order.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <string>

#include "control/call_recorder.hpp"
#include "core/clock.hpp"
#include "core/log.hpp"

namespace pith {

namespace {

// The clock is read once in this many polls.
constexpr std::uint32_t clock_mask = 255;

std::string title(std::uint32_t number, const CollectiveArgs& args) {
  return fmt::format("call {} ({})", number, describe(args));
}
std::string title(std::uint32_t number, const CompressedArgs& args) {
  return fmt::format("call {} (compressed, {} tensors)", number, args.tensors.size());
}
std::string title(std::uint32_t, const PairArgs& args) { return describe(args.messages.front()); }

std::string title(const StreamOrder::Entry& entry) {
  return std::visit([&](const auto& args) { return title(entry.number, args); }, *entry.args);
}

}  // namespace

StreamOrder::StreamOrder(const CommState& state, int rank, double warn_s,
                         void (*begin)(Entry& entry))
    : state_(state),
      rank_(rank),
      warn_ns_(static_cast<std::uint64_t>(warn_s * 1e9)),
      begin_(begin) {}

void StreamOrder::add(Entry& entry, const void* stream) {
  const std::lock_guard lock(mutex_);
  entry.turn_ = turn_;
  entry.stream_ = stream;
  entry.state_ = Entry::State::unreached;
  entry.before_ = last_;
  entry.after_ = nullptr;
  (last_ ? last_->after_ : first_) = &entry;
  last_ = &entry;
}

void StreamOrder::remove(Entry& entry) {
  const std::lock_guard lock(mutex_);
  (entry.before_ ? entry.before_->after_ : first_) = entry.after_;
  (entry.after_ ? entry.after_->before_ : last_) = entry.before_;
}

// Earlier calls on its own stream do not hold it back: they have let the stream go on, and only
// their end has not been seen yet.
bool StreamOrder::may_begin(const Entry& entry) {
  if (state_.revoked) return true;
  const std::lock_guard lock(mutex_);
  for (const Entry* one = first_; one->turn_ != entry.turn_; one = one->after_) {
    if (one->stream_ != entry.stream_) return false;
  }
  return true;
}

bool StreamOrder::reach(Entry& entry) {
  if (may_begin(entry)) {
    entry.state_ = Entry::State::begun;
    return true;
  }
  entry.state_ = Entry::State::held;
  entry.held_ns_ = monotonic_ns();
  held_.push_back(&entry);
  return false;
}

// If the communicator is revoked, a call ends as it begins and calls this function again.
bool StreamOrder::begin_held() {
  if (beginning_) return false;
  beginning_ = true;
  bool any = false;
  for (std::size_t i = 0; i < held_.size();) {
    Entry& entry = *held_[i];
    if (!may_begin(entry)) {
      ++i;
      continue;
    }
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
    entry.state_ = Entry::State::begun;
    begin_(entry);
    any = true;
    told_ = false;
    i = 0;
  }
  beginning_ = false;
  return any;
}

bool StreamOrder::progress() {
  if (held_.empty()) return false;
  if (state_.revoked) return begin_held();
  if ((++polls_ & clock_mask) == 0) look_for_stall(monotonic_ns());
  return false;
}

bool StreamOrder::arm() {
  if (held_.empty() || !state_.revoked) return true;
  sched_yield();
  return false;
}

// The first call before `held` that no stream has reached. Null: all of them run, and stalled ones
// are logged elsewhere.
const StreamOrder::Entry* StreamOrder::awaited_by(const Entry& held) {
  const std::lock_guard lock(mutex_);
  const Entry* one = first_;
  while (one->turn_ != held.turn_ && one->state_ != Entry::State::unreached) one = one->after_;
  return one->turn_ == held.turn_ ? nullptr : one;
}

void StreamOrder::look_for_stall(std::uint64_t now_ns) {
  const Entry& held = *held_.front();
  if (told_ || now_ns - held.held_ns_ < warn_ns_) return;
  const Entry* const awaited = awaited_by(held);
  if (!awaited) return;
  told_ = true;
  log(LogLevel::warn,
      fmt::format("rank {} has held back {} for {:.0f} s: it was enqueued behind {}, which its own "
                  "stream has not reached",
                  rank_, title(held), static_cast<double>(now_ns - held.held_ns_) / 1e9,
                  title(*awaited)));
}

}  // namespace pith
