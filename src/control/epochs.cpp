#include "control/epochs.hpp"

#include <algorithm>
#include <utility>

#include "core/call_number.hpp"

namespace pith {

namespace {

// Rounds of agreement apart from those in which communicators are made.
constexpr std::uint32_t epoch_base = 0x80000000;
GatherKey key_of(const Proposal& proposal) {
  return {proposal.comm, epoch_base | proposal.version};
}

// An agreement takes some milliseconds, more where threads wait for cores.
constexpr double agreement_s = 0.04;
constexpr double least_measured_s = 0.03;
constexpr std::uint32_t least_margin = 2;
constexpr std::uint32_t most_margin = 64;

std::string answer_of(std::optional<std::uint32_t> promised) {
  return Packer().value(promised.value_or(0)).take();
}

// 0: the member refuses.
std::uint32_t promised_by(const std::string& answer) {
  Unpacker in(answer);
  const auto number = in.value<std::uint32_t>();
  return in.whole() && !is_captured(number) ? number : 0;
}

bool are_near(std::uint32_t one, std::uint32_t other) {
  constexpr std::uint32_t near = call_numbers / 4;
  return calls_between(one, other) < near || calls_between(other, one) < near;
}

// The latest of the promised calls; 0: a member refuses, or they are so far apart that their order
// cannot be told. That takes 2^29 calls of no elements in a row: with any others a rank gets ahead
// only as far as the wires hold.
std::uint32_t latest_of(const std::map<int, std::string>& answers) {
  const std::uint32_t one = answers.empty() ? 0 : promised_by(answers.begin()->second);
  std::uint32_t latest = one;
  for (const auto& [rank, answer] : answers) {
    const std::uint32_t number = promised_by(answer);
    if (number == 0 || !are_near(one, number)) return 0;
    if (is_later(number, latest)) latest = number;
  }
  return latest;
}

void conclude(EpochGate& gate, std::uint32_t version, const GatherResult& result) {
  if (!result.agreed) return gate.bar(version, result.error);
  const std::uint32_t first = result.error ? 0 : latest_of(result.blobs);
  first != 0 ? gate.commit(version, first) : gate.cancel(version);
}

}  // namespace

// --- rank 0 of a communicator -------------------------------------------------------------------

bool Epochs::propose(CommKey comm, const std::string& blob) {
  const Watchers::Member* member = watchers_.find(comm);
  EpochGate* const gate = member ? member->watcher->epoch_gate() : nullptr;
  if (!gate || member->ranks.front() != context_.options.rank || !can_propose(comm, *gate)) {
    return false;
  }
  const auto known = last_.find(comm);
  Proposal proposal;
  proposal.comm = comm;
  proposal.version = known == last_.end() ? 1 : known->second.proposal.version + 1;
  proposal.blob = blob;
  const std::string whole = proposal_message(proposal);
  Unpacker in = body_of(whole);
  hear_proposal(in, -1);
  return true;
}

bool Epochs::can_propose(CommKey comm, const EpochGate& gate) const {
  const auto known = last_.find(comm);
  return gate.is_idle() && (known == last_.end() || !known->second.is_open);
}

// Each proposal stops all members for a moment, and one that has not come to the last change
// refuses every one until it has.
bool Epochs::has_rested(CommKey comm) const {
  constexpr double rest_s = 0.05;
  const auto known = last_.find(comm);
  return known == last_.end() || context_.since(known->second.heard_ns) >= rest_s;
}

void Epochs::propose_wanted(CommKey comm, CommWatcher& watcher) {
  const std::optional<std::string> wanted = watcher.wanted_parameters();
  if (wanted) propose(comm, *wanted);
}

// --- every rank ---------------------------------------------------------------------------------

void Epochs::hear_proposal(Unpacker& in, int from) {
  Proposal proposal = unpack_proposal(in);
  if (!in.whole() || revocation_.tell_if_over(proposal.comm, from)) return;
  const auto known = last_.find(proposal.comm);
  const std::uint32_t heard = known == last_.end() ? 0 : known->second.proposal.version;
  if (proposal.version <= heard || (proposal.version & epoch_base) != 0) return;
  tree_.spread(proposal_message(proposal), from);
  Last& last = last_[proposal.comm];
  last = {std::move(proposal), true, false, context_.now_ns};
  answer(last);
}

void Epochs::on_added(CommKey comm) {
  const auto found = last_.find(comm);
  if (found != last_.end()) answer(found->second);
}

void Epochs::answer(Last& last) {
  const Proposal& proposal = last.proposal;
  const Watchers::Member* member = watchers_.find(proposal.comm);
  if (!member || last.answered) return;
  last.answered = true;
  const GatherKey key = key_of(proposal);
  EpochGate* const gate = member->watcher->epoch_gate();
  std::optional<std::uint32_t> promised;
  if (gate) {
    promised = gate->promise(margin(proposal.comm, *gate), {proposal.version, proposal.blob});
  }
  agreement_.gather(
      {key, GatherNeed::all, member->ranks, context_.options.rank, answer_of(promised)},
      [gate, version = proposal.version](const GatherResult& result) {
        if (gate) conclude(*gate, version, result);
      },
      {});
}

void Epochs::turn() {
  for (auto& [comm, last] : last_) {
    if (last.is_open && agreement_.is_decided(key_of(last.proposal))) last.is_open = false;
  }
  for (const auto& [comm, member] : watchers_.all()) {
    const EpochGate* const gate = member.watcher->epoch_gate();
    if (!gate) continue;
    measure(comm, *gate);
    const bool proposes = member.ranks.front() == context_.options.rank;
    if (proposes && has_rested(comm) && can_propose(comm, *gate)) {
      propose_wanted(comm, *member.watcher);
    }
  }
}

// Calls since the last measurement count too: they may be the first ones.
std::uint32_t Epochs::margin(CommKey comm, const EpochGate& gate) const {
  const auto found = paces_.find(comm);
  if (found == paces_.end()) return least_margin;
  const Pace& pace = found->second;
  const double calls = std::max<double>(pace.calls, calls_between(pace.number, gate.next()));
  return static_cast<std::uint32_t>(std::clamp<double>(calls, least_margin, most_margin));
}

void Epochs::measure(CommKey comm, const EpochGate& gate) {
  const auto [entry, is_first] = paces_.try_emplace(comm);
  Pace& pace = entry->second;
  const double seconds = context_.since(pace.at_ns);
  if (!is_first && seconds < least_measured_s) return;
  const std::uint32_t number = gate.next();
  if (!is_first) pace.calls = calls_between(pace.number, number) * (agreement_s / seconds);
  pace.number = number;
  pace.at_ns = context_.now_ns;
}

void Epochs::pack(Packer& packer) const {
  const auto is_open = [](const auto& entry) { return entry.second.is_open; };
  packer.value(static_cast<std::uint32_t>(std::ranges::count_if(last_, is_open)));
  for (const auto& [comm, last] : last_) {
    if (!last.is_open) continue;
    const Proposal& proposal = last.proposal;
    packer.value(comm).value(proposal.version).text(proposal.blob);
  }
}

void Epochs::hear(Unpacker& in, int from) {
  const auto count = in.value<std::uint32_t>();
  for (std::uint32_t i = 0; i < count && in.whole(); ++i) hear_proposal(in, from);
}

// --- communicators ------------------------------------------------------------------------------

void Epochs::forget(CommKey comm) {
  last_.erase(comm);
  paces_.erase(comm);
}

void Epochs::add_known(std::set<CommKey>& known) const {
  for (const auto& [comm, last] : last_) known.insert(comm);
}

}  // namespace pith
