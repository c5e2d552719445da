#include "comm/call_watch.hpp"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/log.hpp"

namespace pith {

namespace {

constexpr std::uint64_t lasting_ns = 150'000'000;

}  // namespace

CallWatch::CallWatch(Links& links, CallRecorder& recorder, const PairWindows& windows)
    : links_(links), recorder_(recorder), windows_(windows) {
  look_work_.context = this;
  look_work_.run = [](Work& work) {
    static_cast<CallWatch*>(work.context)->look_who_is_waited_for();
  };
}

std::optional<Stall> CallWatch::look(std::uint64_t now_ns) {
  const std::optional<CallNote> call = recorder_.oldest_unfinished();
  const std::uint32_t moves = links_.engine().moves();
  look_at_what_lasts(call, now_ns);
  if (!call || call->number != watched_.call || moves != watched_.moves || !watched_.any) {
    watched_ = {call.has_value(), call ? call->number : 0, moves, now_ns};
    waits_for_.store(-1, std::memory_order_relaxed);  // the old answer is outdated
    return std::nullopt;
  }
  Stall stall;
  stall.call = *call;
  stall.seconds = static_cast<double>(now_ns - watched_.since_ns) / 1e9;
  stall.waits_for = waits_for_.load(std::memory_order_relaxed);
  return stall;
}

// Looks even while other calls progress, since one of several links may be dead. Only the engine
// knows which rank a call waits for; its answer arrives by the next look.
void CallWatch::look_at_what_lasts(const std::optional<CallNote>& call, std::uint64_t now_ns) {
  if (!call || !lasting_.any || call->number != lasting_.call) {
    lasting_ = {call.has_value(), call ? call->number : 0, now_ns};
  }
  const bool lasts = call && now_ns - lasting_.since_ns > lasting_ns;
  if (lasts && !look_posted_.exchange(true)) links_.engine().post(look_work_);
}

// With the engine's token.
void CallWatch::look_who_is_waited_for() {
  CallRecorder::AwaitedList awaited(recorder_);
  links_.engine().mailbox().for_each_waiting([&](int from, const Tag& tag) {
    awaited.add({from, tag, false});
  });
  links_.transports().for_each_sending([&](const Send& send) {
    awaited.add({send.peer, send.header.tag(), true});
  });
  recorder_.tell_awaited(awaited.some());
  waits_for_.store(awaited.waits_for(), std::memory_order_relaxed);
  // Checks whether the awaited rank can be reached at all.
  links_.transports().look_at_links(monotonic_ns());
  look_posted_.store(false, std::memory_order_release);
}

void CallWatch::tell(const Stall& stall) const {
  // The rank is unknown if the call waits for a kernel.
  std::string whom = stall.waits_for < 0 ? "" : fmt::format(" for rank {}", stall.waits_for);
  if (!stall.absent.empty()) whom = " for " + stall.absent;
  std::string text = fmt::format("rank {} has waited {:.0f} s{} in {}", links_.rank(),
                                 stall.seconds, whom, title_of(stall.call));
  text += "; its last calls:";
  constexpr std::size_t told_ended = 4;  // few, as every rank of a job logs them
  const std::vector<std::string> lines =
      recorder_.lines(windows_.head_bytes(), links_.model().tuning().chunk_bytes, told_ended);
  for (const std::string& line : lines) text += "\n  " + line;
  log(LogLevel::warn, text);
}

}  // namespace pith
