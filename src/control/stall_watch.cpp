#include "control/stall_watch.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "control/call_difference.hpp"
#include "control/members.hpp"

namespace pith {

namespace {

// How often a stall is reported again: what other ranks do changes meanwhile, and a disagreement
// must be found within a second.
constexpr std::uint64_t again_ns = 700'000'000;
constexpr std::uint64_t inquiry_kept_ns = 10'000'000'000;

bool disagree(const NotedCall& one, const NotedCall& other) {
  return one.second.digest != other.second.digest && !contains(one.second.without, other.first) &&
         !contains(other.second.without, one.first);
}

// Compares each rank with the lowest one that is in an agreement, and with the lowest one that has
// begun the call itself. Null: no two disagree.
std::pair<const NotedCall*, const NotedCall*> find_dispute(const std::map<int, CallNote>& notes) {
  for (const bool agreement : {true, false}) {
    const auto first = std::ranges::find_if(
        notes, [&](const NotedCall& noted) { return (noted.second.round != 0) == agreement; });
    if (first == notes.end()) continue;
    for (const NotedCall& noted : notes) {
      if (!disagree(*first, noted)) continue;
      return first->first < noted.first ? std::pair(&*first, &noted) : std::pair(&noted, &*first);
    }
  }
  return {nullptr, nullptr};
}

Error dispute_error(std::uint32_t number, const std::vector<int>& members, const NotedCall& first,
                    const NotedCall& second) {
  const int one = place_of(members, first.first);
  const int other = place_of(members, second.first);
  const std::string differs = difference_of(first.second, second.second);
  return {
      Code::invalid_usage,
      fmt::format("ranks disagree on call {} of this communicator: rank {} called {}, rank {} "
                  "called {}{}{}",
                  number, one, words_beside(first.second, second.second), other,
                  words_beside(second.second, first.second), differs.empty() ? "" : ": ", differs),
      other};
}

// Whom to blame for a stall: ranks that have not made the call, else the one waited for.
Error blame(const StallReport& report, const std::map<int, CallNote>& notes, double timeout_s) {
  const Stall& stall = report.stall;
  std::vector<int> absent;
  for (std::size_t i = 0; i < report.members.size(); ++i) {
    const auto noted = notes.find(report.members[i]);
    const bool is_in_it = noted != notes.end() && noted->second.digest == stall.call.digest;
    if (!is_in_it) absent.push_back(static_cast<int>(i));
  }
  const std::string call = title_of(stall.call);
  // Calls without a number are between pairs: other ranks take no part.
  if (!absent.empty() && stall.call.number != 0) {
    return {Code::remote,
            fmt::format("{} did not call {} within {} s, or has stopped", list_of(absent), call,
                        timeout_s),
            absent.front()};
  }
  // A rank that waits for a kernel waits for no rank.
  const std::string whom = stall.waits_for < 0 ? "" : fmt::format(" for rank {}", stall.waits_for);
  return {Code::remote,
          fmt::format("rank {} has waited {:.0f} s{} in {}", place_of(report.members, report.rank),
                      stall.seconds, whom, call),
          stall.waits_for};
}

}  // namespace

bool StallWatch::is_due(std::uint64_t last_ns) const {
  return context_.now_ns - last_ns >= again_ns;
}

void StallWatch::turn(const Stalls& stalls) {
  ask_again();
  report_calls(stalls);
  report_agreements();
  warn_of_agreements();
  std::erase_if(inquiries_, [this](const auto& entry) {
    return context_.now_ns - entry.second.asked_ns > inquiry_kept_ns;
  });
  captures_.forget_stale();
}

// --- every rank -------------------------------------------------------------------------------

void StallWatch::report_calls(const Stalls& stalls) {
  for (auto& [comm, member] : watchers_.all()) {
    const auto found = stalls.find(comm);
    if (found == stalls.end()) member.warned = false;
    if (found == stalls.end() || member.told) continue;
    const Stall& stall = found->second;
    if (is_due(member.reported_ns)) {
      member.reported_ns = context_.now_ns;
      report(comm, member, stall);
    }
    const bool lasts = stall.seconds >= context_.options.warn_s;
    if (!std::exchange(member.warned, lasts) && lasts) watchers_.warn_later(comm, member, stall);
  }
}

// Reports calls that are agreements, which no watcher knows. A report may end its agreement.
void StallWatch::report_agreements() {
  std::vector<std::pair<CommKey, Stall>> due;
  for (auto& [key, pending] : agreement_.pending()) {
    const double waited = context_.since(pending.since_ns);
    if (pending.call.number == 0 || waited < context_.options.report_s) continue;
    if (!is_due(pending.reported_ns)) continue;
    pending.reported_ns = context_.now_ns;
    due.emplace_back(key.comm, Stall{pending.call, waited, -1});
  }
  for (const auto& [comm, stall] : due) {
    const Watchers::Member* member = watchers_.find(comm);
    if (member && !member->told) report(comm, *member, stall);
  }
}

// No watcher sees agreements that take too long, least of all those of a revoked communicator.
void StallWatch::warn_of_agreements() {
  for (auto& [key, pending] : agreement_.pending()) {
    const double waited = context_.since(pending.since_ns);
    if (pending.warned || pending.call.text.empty() || waited < context_.options.warn_s) continue;
    const Watchers::Member* member = watchers_.find(key.comm);
    if (!member) continue;
    pending.warned = true;
    Stall stall{pending.call, waited, -1, list_of(pending.missing)};
    // Then the root's list of missing ranks may not have arrived.
    const bool silent = parent_watch_.silence() > silent_s;
    if (silent) stall.waits_for = place_of(member->ranks, tree_.parent());
    watchers_.warn_later(key.comm, *member, std::move(stall));
  }
}

void StallWatch::suspect(CommKey comm, const CallNote& call) {
  const Watchers::Member* member = watchers_.find(comm);
  if (!member || !context_.started) return;
  Stall stall;
  stall.call = call;
  report(comm, *member, stall);
}

void StallWatch::report(CommKey comm, const Watchers::Member& member, const Stall& stall) {
  const std::string whole = stall_message({comm, member.ranks, context_.options.rank, stall});
  Unpacker in = body_of(whole);
  hear_stall(in, whole);
}

void StallWatch::hear_question(Unpacker& in, const std::string& whole) {
  tree_.ask_children(whole);
  const auto comm = in.value<CommKey>();
  const auto number = in.value<std::uint32_t>();
  const Watchers::Member* member = watchers_.find(comm);
  if (!member) return;
  std::optional<CallNote> call = agreement_.find_call(comm, number);
  if (!call) call = member->watcher->find_call(number);
  if (!call) {
    return revocation_.revoke(comm, member->ranks, member->watcher->refusal_of(number), -1);
  }
  Packer packer = message(MessageKind::answer);
  packer.value(comm).value(context_.options.rank);
  pack(packer, *call);
  tree_.send_up(packer.take());
}

// --- the root ---------------------------------------------------------------------------------

void StallWatch::hear_stall(Unpacker& in, const std::string& whole) {
  const StallReport report = unpack_stall(in);
  if (tree_.is_root()) {
    if (in.whole()) judge(report);
  } else if (report.stall.seconds == 0) {
    // A suspicion is reported once, so a parent that sleeps must get it, too.
    tree_.send_up(whole);
  } else {
    tree_.ask(tree_.parent(), whole);
  }
}

void StallWatch::judge(const StallReport& report) {
  const CommKey comm = report.comm;
  const Stall& stall = report.stall;
  if (revocation_.is_revoked(comm) || revocation_.is_over(comm)) return;
  if (const Error error = captures_.note(report)) {
    return revocation_.revoke(comm, report.members, error, -1);
  }
  const InquiryKey key{comm, stall.call.number};
  const auto [entry, fresh] = inquiries_.try_emplace(key);
  Inquiry& inquiry = entry->second;
  inquiry.members = report.members;
  inquiry.notes[report.rank] = stall.call;
  // An agreement that takes too long ends by its own result.
  const double timeout_s = context_.options.timeout_s;
  const bool too_long = timeout_s > 0 && stall.seconds >= timeout_s;
  if (!fresh && too_long && stall.call.round == 0) {
    return revocation_.revoke(comm, report.members, blame(report, inquiry.notes, timeout_s), -1);
  }
  // All stalled ranks report, and all ranks answer each question, so one question serves them all.
  // A suspicion follows from a message and is reported once, so it is not delayed.
  const bool suspected = stall.seconds == 0;
  if (fresh || suspected || is_due(inquiry.asked_ns)) return ask(key, inquiry);
  inquiry.again = true;
  compare(key, inquiry);
}

void StallWatch::ask(const InquiryKey& key, Inquiry& inquiry) {
  inquiry.asked_ns = context_.now_ns;
  inquiry.again = false;
  const std::string question =
      message(MessageKind::question).value(key.first).value(key.second).take();
  Unpacker in = body_of(question);
  hear_question(in, question);
}

// Does not wait for the next report, which may be too late for a rank that has called meanwhile.
void StallWatch::ask_again() {
  for (auto& [key, inquiry] : inquiries_) {
    const bool due = inquiry.again && is_due(inquiry.asked_ns);
    if (due && !revocation_.is_revoked(key.first)) ask(key, inquiry);
  }
}

void StallWatch::hear_answer(Unpacker& in, const std::string& whole) {
  if (!tree_.is_root()) return tree_.send_up(whole);
  const auto comm = in.value<CommKey>();
  const int rank = in.value<int>();
  const CallNote call = unpack_call(in);
  const auto found = inquiries_.find({comm, call.number});
  if (!in.whole() || found == inquiries_.end()) return;
  found->second.notes[rank] = call;
  compare(found->first, found->second);
}

void StallWatch::compare(const InquiryKey& key, Inquiry& inquiry) {
  const CommKey comm = key.first;
  // A rank whose agreement has ended may be in the call by now.
  std::erase_if(inquiry.notes, [&](const NotedCall& noted) {
    return noted.second.round != 0 && agreement_.is_decided({comm, noted.second.round});
  });
  const auto [first, second] = find_dispute(inquiry.notes);
  if (!first) return;
  const bool agreement = first->second.round != 0 || second->second.round != 0;
  const auto is_lost = [this](int rank) { return context_.membership.is_dead(rank); };
  // Then a shrink is right, whatever other ranks are in: they will hear of the failure.
  if (agreement &&
      (revocation_.is_revoked(comm) || std::ranges::any_of(inquiry.members, is_lost))) {
    return;
  }
  const Error error = dispute_error(key.second, inquiry.members, *first, *second);
  // Before the revocation: a rank that hears only of that may begin the next agreement and skip
  // this one.
  for (const auto& [rank, call] : inquiry.notes) {
    if (agreement && call.round != 0) agreement_.conclude({comm, call.round}, error, {});
  }
  revocation_.revoke(comm, inquiry.members, error, -1);
}

// --- communicators ----------------------------------------------------------------------------

void StallWatch::forget(CommKey comm) {
  std::erase_if(inquiries_, [comm](const auto& entry) { return entry.first.first == comm; });
  captures_.forget(comm);
}

void StallWatch::add_known(std::set<CommKey>& known) const {
  for (const auto& [key, inquiry] : inquiries_) known.insert(key.first);
  captures_.add_known(known);
}

}  // namespace pith
