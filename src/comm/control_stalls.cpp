// Calls that get no further: ranks report them, the root asks the others what they are in, and
// blames who disagrees or does not come.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "comm/call_difference.hpp"
#include "comm/control_messages.hpp"

namespace pith {

namespace {

// A stall is reported again so often: what the other ranks do meanwhile changes. Who disagrees with
// a call that stands still is to be found within a second.
constexpr std::uint64_t report_again_ns = 700'000'000;
// A parent that answers is given time to blame.
constexpr double patience_s = 4;
// Those who shrink a communicator without their parent need not wait for one that has stopped.
constexpr double excluded_silent_s = 2;
constexpr double least_excluded_silent_s = 0.5;

}  // namespace

std::string title_of(const CallNote& call) {
  return call.number == 0 ? call.text : fmt::format("call {} ({})", call.number, call.text);
}

// Without the lock: watchers may use what they like. remove() waits for the end of the turn.
ControlPlane::Stalls ControlPlane::look_for_stalls(std::uint64_t now_ns) {
  std::vector<std::pair<CommKey, CommWatcher*>> watchers;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [comm, member] : members_) watchers.emplace_back(comm, member.watcher);
  }
  Stalls stalls;
  for (const auto& [comm, watcher] : watchers) {
    std::optional<Stall> stall = watcher->look(now_ns);
    if (stall && stall->seconds >= options_.report_s) stalls.emplace(comm, std::move(*stall));
  }
  return stalls;
}

void ControlPlane::report(const Stalls& stalls) {
  for (auto& [comm, member] : members_) {
    const auto found = stalls.find(comm);
    if (found == stalls.end()) member.warned = false;
    if (found == stalls.end() || member.told) continue;
    const Stall& stall = found->second;
    if (now_ns_ - member.reported_ns >= report_again_ns) {
      member.reported_ns = now_ns_;
      report(comm, member, stall);
    }
    const bool warned = std::exchange(member.warned, stall.seconds >= options_.warn_s);
    if (member.warned && !warned) {
      ready_.emplace_back(
          comm, [watcher = member.watcher, stall = stall] { watcher->on_stalled(stall); });
    }
  }
}

// Of calls that are agreements: no watcher knows them. What is said of one may end it.
void ControlPlane::report_agreements() {
  std::vector<std::pair<CommKey, Stall>> due;
  for (auto& [key, pending] : pending_) {
    if (pending.call.number == 0 || since(pending.since_ns) < options_.report_s) continue;
    if (now_ns_ - pending.reported_ns < report_again_ns) continue;
    pending.reported_ns = now_ns_;
    due.emplace_back(key.comm, Stall{pending.call, since(pending.since_ns), -1});
  }
  for (const auto& [comm, stall] : due) {
    const auto member = members_.find(comm);
    if (member != members_.end() && !member->second.told) report(comm, member->second, stall);
  }
}

// No watcher sees those that last too long, least of all where the communicator is revoked.
void ControlPlane::warn_of_agreements() {
  for (auto& [key, pending] : pending_) {
    const double waited = since(pending.since_ns);
    if (pending.warned || pending.call.text.empty() || waited < options_.warn_s) continue;
    const auto member = members_.find(key.comm);
    if (member == members_.end()) continue;
    pending.warned = true;
    Stall stall{pending.call, waited, -1, list(pending.missing)};
    // Then the root has not said for whom, or its word has not come.
    const bool silent = silence_of_parent() > silent_s;
    if (silent) stall.waits_for = place_of(member->second.ranks, parent_);
    ready_.emplace_back(key.comm, [watcher = member->second.watcher, stall = std::move(stall)] {
      watcher->on_stalled(stall);
    });
  }
}

std::optional<CallNote> ControlPlane::find_agreement(CommKey comm, std::uint32_t number) const {
  for (const auto& [key, pending] : pending_) {
    if (key.comm == comm && number != 0 && pending.call.number == number) return pending.call;
  }
  return std::nullopt;
}

// The root tells when a call or an agreement has taken too long. If it has stopped itself, or a
// rank on the way to it, each rank must do so for itself.
void ControlPlane::watch_parent(const Stalls& stalls) {
  double waited = 0;
  for (const auto& [comm, stall] : stalls) waited = std::max(waited, stall.seconds);
  for (const auto& [key, pending] : pending_) waited = std::max(waited, since(pending.since_ns));
  const bool excluded = !is_root() && parent_is_excluded();
  const bool in_the_way = excluded || (!is_root() && parent_is_beside(stalls));
  if (is_root() || (waited < options_.report_s && !in_the_way)) {
    pinged_ns_ = 0;
    return;
  }
  // Before those above miss what this rank has to say.
  const double patience =
      options_.timeout_s == 0
          ? excluded_silent_s
          : std::clamp(options_.timeout_s / 2, least_excluded_silent_s, excluded_silent_s);
  // More than one question must have gone unanswered.
  const auto ping_again_ns =
      in_the_way ? static_cast<std::uint64_t>(patience * 1e9 / 3) : report_again_ns;
  const bool first = pinged_ns_ == 0;
  if (first) silent_since_ns_ = now_ns_;
  // One that sleeps answers all of them when it wakes up: a few are enough.
  if (first || (now_ns_ - pinged_ns_ >= ping_again_ns && silence_of_parent() <= patience_s)) {
    pinged_ns_ = now_ns_;
    wire_.send(parent_, message(Kind::ping).take());
  }
  const double silent = silence_of_parent();
  const double limit = options_.timeout_s + (silent > silent_s ? 0.5 : patience_s);
  if (excluded && silent > patience) return give_up_parent(silent);
  if (in_the_way && silent > patience && has_parent(parent_)) return pass_by_parent();
  if (options_.timeout_s == 0 || waited < limit) return;
  for (const auto& [comm, stall] : stalls) {
    const auto member = members_.find(comm);
    if (member == members_.end() || stall.seconds < limit) continue;
    const std::vector<int>& members = member->second.ranks;
    note_revoked(comm, members, cause_of_wait(members, stall.waits_for, waited, silent), -1);
  }
  for (auto entry = pending_.begin(); entry != pending_.end();) {
    const auto next = std::next(entry);
    if (since(entry->second.since_ns) >= limit) {
      refuse(entry->first, entry->second,
             cause_of_wait(entry->second.participants, -1, waited, silent));
      pending_.erase(entry);
    }
    entry = next;
  }
}

double ControlPlane::silence_of_parent() const {
  if (pinged_ns_ == 0) return 0;
  return since(std::max({silent_since_ns_, parent_heard_ns_, parent_since_ns_}));
}

// What a rank tells itself that has waited too long.
Error ControlPlane::cause_of_wait(const std::vector<int>& members, int waits_for, double waited,
                                  double silent) const {
  const int place = place_of(members, parent_);
  if (silent > silent_s && place >= 0) {
    return {Code::remote,
            fmt::format("rank {} has stopped: it has not answered for {:.0f} s", place, silent),
            place};
  }
  if (waits_for >= 0) {
    return {Code::remote, fmt::format("rank {} has not gone on for {:.0f} s", waits_for, waited),
            waits_for};
  }
  if (silent > silent_s) {
    return {Code::remote,
            fmt::format("rank {} of the job, which all agreements pass, has stopped: it has not "
                        "answered for {:.0f} s",
                        parent_, silent)};
  }
  return {Code::remote, fmt::format("the other ranks have not gone on for {:.0f} s", waited)};
}

// Whether others wait by way of the parent for what does not concern it: as participants of an
// agreement, here or below, or as members of a communicator.
bool ControlPlane::parent_is_beside(const Stalls& stalls) const {
  const auto is_beside = [this](const auto& entry) {
    return since(entry.second.since_ns) >= options_.report_s &&
           !contains(entry.second.participants, parent_);
  };
  const auto stalls_beside = [this](const auto& entry) {
    const auto member = members_.find(entry.first);
    return member != members_.end() && !contains(member->second.ranks, parent_);
  };
  return std::any_of(pending_.begin(), pending_.end(), is_beside) ||
         std::any_of(collecting_.begin(), collecting_.end(), is_beside) ||
         std::any_of(stalls.begin(), stalls.end(), stalls_beside);
}

bool ControlPlane::has_parent(int rank) const {
  for (int lower = 0; lower < rank; ++lower) {
    if (lives(lower)) return true;
  }
  return false;
}

// It may go on at any time, and is none of those who wait: nobody is to lose it.
void ControlPlane::pass_by_parent() {
  passed_by_.insert(parent_);
  refresh_tree();
}

// Whether members of a communicator agree on one without the parent, which is a member, too.
bool ControlPlane::parent_is_excluded() const {
  return std::any_of(pending_.begin(), pending_.end(), [this](const auto& entry) {
    const auto& [key, pending] = entry;
    const auto member = members_.find(key.comm);
    return pending.need == Need::live && member != members_.end() &&
           contains(member->second.ranks, parent_) && !contains(pending.participants, parent_);
  });
}

// It blocks the way to the others and is not to take part any more: the tree is repaired as if it
// had died. When it wakes up it hears that.
void ControlPlane::give_up_parent(double silent) {
  const std::string how = fmt::format("it was left out and has not answered for {:.0f} s", silent);
  const int parent = parent_;
  wire_.send(parent, message(Kind::dead).value(parent).text(how).take());
  note_dead(parent, how, -1);
}

void ControlPlane::suspect(CommKey comm, const CallNote& call) {
  const std::lock_guard lock(mutex_);
  const auto found = members_.find(comm);
  if (found == members_.end() || !started_) return;
  Stall stall;
  stall.call = call;
  report(comm, found->second, stall);
}

void ControlPlane::report(CommKey comm, const Member& member, const Stall& stall) {
  Packer packer = message(Kind::stall);
  packer.value(comm).numbers(member.ranks).value(options_.rank);
  pack(packer, stall.call);
  packer.value(stall.seconds).value(stall.waits_for);
  if (is_root()) return hear(options_.rank, packer.take());
  pass_up(stall, packer.take());
}

// A suspicion is said once, so it is put before those who sleep as well.
void ControlPlane::pass_up(const Stall& stall, const std::string& whole) {
  if (stall.seconds == 0) return wire_.send(parent_, whole);
  ask(parent_, whole);
}

void ControlPlane::hear_stall(Unpacker& in, const std::string& whole) {
  const auto comm = in.value<CommKey>();
  const std::vector<int> members = in.numbers();
  const int rank = in.value<int>();
  Stall stall;
  stall.call = unpack_call(in);
  stall.seconds = in.value<double>();
  stall.waits_for = in.value<int>();
  if (!is_root()) return pass_up(stall, whole);
  if (!in.whole() || revoked_.contains(comm) || over_.contains(comm)) return;

  note_standing(comm, members, rank, stall);
  if (revoked_.contains(comm)) return;
  const InquiryKey key{comm, stall.call.number};
  const auto [entry, fresh] = inquiries_.try_emplace(key);
  Inquiry& inquiry = entry->second;
  inquiry.members = members;
  inquiry.notes[rank] = stall.call;
  // Of an agreement that takes too long its own result tells.
  const bool too_long = options_.timeout_s > 0 && stall.seconds >= options_.timeout_s;
  if (!fresh && too_long && stall.call.round == 0) {
    return note_revoked(comm, members, blame(key, inquiry, place_of(members, rank), stall), -1);
  }
  // All that stand still report, and all answer each time: one question for all of them. Who
  // suspects has seen a message, says so once, and has no time.
  const bool suspected = stall.seconds == 0;
  if (!fresh && !suspected && now_ns_ - inquiry.asked_ns < report_again_ns) {
    inquiry.again = true;
    return compare(key, inquiry);
  }
  inquire(key, inquiry);
}

void ControlPlane::inquire(const InquiryKey& key, Inquiry& inquiry) {
  inquiry.asked_ns = now_ns_;
  inquiry.again = false;
  const std::string question = message(Kind::question).value(key.first).value(key.second).take();
  Unpacker asked(question);
  asked.value<Kind>();
  hear_question(asked, question);
}

// Not only when the next report comes: that may be too late for who has called meanwhile.
void ControlPlane::inquire_again() {
  for (auto& [key, inquiry] : inquiries_) {
    const bool due = inquiry.again && now_ns_ - inquiry.asked_ns >= report_again_ns;
    if (due && !revoked_.contains(key.first)) inquire(key, inquiry);
  }
}

void ControlPlane::hear_question(Unpacker& in, const std::string& whole) {
  for (const int child : children_) ask(child, whole);
  const auto comm = in.value<CommKey>();
  const auto number = in.value<std::uint32_t>();
  const auto member = members_.find(comm);
  if (member == members_.end()) return;
  std::optional<CallNote> call = find_agreement(comm, number);
  if (!call) call = member->second.watcher->find_call(number);
  if (!call) {
    return note_revoked(comm, member->second.ranks, member->second.watcher->refusal_of(number), -1);
  }
  Packer packer = message(Kind::answer);
  packer.value(comm).value(options_.rank);
  pack(packer, *call);
  send_up(packer.take());
}

void ControlPlane::hear_answer(Unpacker& in, const std::string& whole) {
  if (!is_root()) return send_up(whole);
  const auto comm = in.value<CommKey>();
  const int rank = in.value<int>();
  const CallNote call = unpack_call(in);
  const auto found = inquiries_.find({comm, call.number});
  if (!in.whole() || found == inquiries_.end()) return;
  found->second.notes[rank] = call;
  compare(found->first, found->second);
}

bool ControlPlane::disagree(const Noted& one, const Noted& other) {
  return one.second.digest != other.second.digest && !contains(one.second.without, other.first) &&
         !contains(other.second.without, one.first);
}

// Ranks are compared with the lowest one that is in an agreement, and with the lowest one that has
// begun the call itself. Null: there are no two that disagree.
std::pair<const ControlPlane::Noted*, const ControlPlane::Noted*> ControlPlane::find_dispute(
    const Inquiry& inquiry) {
  for (const bool agreement : {true, false}) {
    const auto first =
        std::find_if(inquiry.notes.begin(), inquiry.notes.end(),
                     [&](const Noted& noted) { return (noted.second.round != 0) == agreement; });
    if (first == inquiry.notes.end()) continue;
    for (const Noted& noted : inquiry.notes) {
      if (!disagree(*first, noted)) continue;
      return first->first < noted.first ? std::pair(&*first, &noted) : std::pair(&noted, &*first);
    }
  }
  return {nullptr, nullptr};
}

void ControlPlane::compare(const InquiryKey& key, Inquiry& inquiry) {
  const CommKey comm = key.first;
  // Who has ended an agreement may be in the call by now.
  std::erase_if(inquiry.notes, [&](const Noted& noted) {
    return noted.second.round != 0 && is_decided({comm, noted.second.round});
  });
  const auto [first, second] = find_dispute(inquiry);
  if (!first) return;
  const bool agreement = first->second.round != 0 || second->second.round != 0;
  const auto is_lost = [this](int rank) { return is_dead(rank); };
  // Then a shrink is right, whatever others are in: they will hear of it.
  if (agreement && (revoked_.contains(comm) || std::ranges::any_of(inquiry.members, is_lost))) {
    return;
  }
  const int one = place_of(inquiry.members, first->first);
  const int other = place_of(inquiry.members, second->first);
  const std::string differs = difference_of(first->second, second->second);
  const Error error(Code::invalid_usage,
                    fmt::format("ranks disagree on call {} of this communicator: rank {} called "
                                "{}, rank {} called {}{}{}",
                                key.second, one, words_beside(first->second, second->second), other,
                                words_beside(second->second, first->second),
                                differs.empty() ? "" : ": ", differs),
                    other);
  // Before the fact: who hears of that alone may begin the next agreement, and passes over this.
  for (const auto& [rank, call] : inquiry.notes) {
    if (agreement && call.round != 0) conclude({comm, call.round}, error, {});
  }
  note_revoked(comm, inquiry.members, error, -1);
}

// Who keeps a call from getting on: ranks that have not called it, else the one waited for.
Error ControlPlane::blame(const InquiryKey& key, const Inquiry& inquiry, int reporter,
                          const Stall& stall) const {
  std::vector<int> absent;
  for (std::size_t i = 0; i < inquiry.members.size(); ++i) {
    const auto noted = inquiry.notes.find(inquiry.members[i]);
    const bool is_in_it = noted != inquiry.notes.end() && noted->second.digest == stall.call.digest;
    if (!is_in_it) absent.push_back(static_cast<int>(i));
  }
  const std::string call = title_of(stall.call);
  // Calls without a number concern pairs: others need not have called anything.
  if (!absent.empty() && key.second != 0) {
    return {Code::remote,
            fmt::format("{} did not call {} within {} s, or has stopped", list(absent), call,
                        options_.timeout_s),
            absent.front()};
  }
  // Who waits for a kernel waits for no message.
  const std::string whom = stall.waits_for < 0 ? "" : fmt::format(" for rank {}", stall.waits_for);
  return {Code::remote,
          fmt::format("rank {} has waited {:.0f} s{} in {}", reporter, stall.seconds, whom, call),
          stall.waits_for};
}

}  // namespace pith
