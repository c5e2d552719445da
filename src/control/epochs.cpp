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

const std::string promised = "promised";
const std::string refused = "refused";

// An agreement takes some milliseconds, and a tenth of a second where threads wait for cores.
constexpr double ahead_s = 1;
constexpr std::uint32_t least_ahead = 16;
constexpr std::uint32_t most_ahead = call_numbers / 8;
constexpr double measured_s = 0.25;
// What is left of the pace of a burst after each time without one.
constexpr double slower = 0.9;

void conclude(EpochGate& gate, std::uint32_t version, const GatherResult& result) {
  if (!result.agreed) return gate.bar(version, result.error);
  const bool all = !result.error && std::ranges::all_of(result.blobs, [](const auto& answer) {
    return answer.second == promised;
  });
  all ? gate.commit(version) : gate.cancel(version);
}

}  // namespace

// --- rank 0 of a communicator -------------------------------------------------------------------

bool Epochs::propose(CommKey comm, const std::string& blob, std::uint32_t ahead) {
  const Watchers::Member* member = watchers_.find(comm);
  EpochGate* const gate = member ? member->watcher->epoch_gate() : nullptr;
  if (!gate || !gate->is_idle() || member->ranks.front() != context_.options.rank) return false;
  const auto known = last_.find(comm);
  if (known != last_.end() && known->second.is_open) return false;
  if (ahead == 0) ahead = calls_ahead(comm);
  if (ahead == 0) return false;
  Proposal proposal;
  proposal.comm = comm;
  proposal.version = known == last_.end() ? 1 : known->second.proposal.version + 1;
  proposal.first = number_after(gate->next(), ahead);
  proposal.blob = blob;
  const std::string whole = proposal_message(proposal);
  Unpacker in = body_of(whole);
  hear_proposal(in, -1);
  return true;
}

std::uint32_t Epochs::calls_ahead(CommKey comm) const {
  const auto found = paces_.find(comm);
  if (found == paces_.end() || !found->second.measured) return 0;
  const double calls = found->second.per_s * ahead_s;
  return static_cast<std::uint32_t>(std::clamp(calls, double{least_ahead}, double{most_ahead}));
}

void Epochs::measure(CommKey comm, const EpochGate& gate) {
  Pace& pace = paces_[comm];
  const double seconds = context_.since(pace.at_ns);
  if (pace.at_ns != 0 && seconds < measured_s) return;
  const std::uint32_t number = gate.next();
  if (pace.at_ns != 0) {
    pace.per_s = std::max(calls_between(pace.number, number) / seconds, pace.per_s * slower);
    pace.measured = true;
  }
  pace.number = number;
  pace.at_ns = context_.now_ns;
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
  last = {std::move(proposal), true, false};
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
  const bool can = gate && gate->promise(proposal.first, {proposal.version, proposal.blob});
  agreement_.gather(
      {key, GatherNeed::all, member->ranks, context_.options.rank, can ? promised : refused},
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
    if (!gate || member.ranks.front() != context_.options.rank) continue;
    measure(comm, *gate);
    if (can_propose(comm, *gate)) propose_wanted(comm, *member.watcher);
  }
}

bool Epochs::can_propose(CommKey comm, const EpochGate& gate) const {
  const auto known = last_.find(comm);
  const bool is_open = known != last_.end() && known->second.is_open;
  return gate.is_idle() && !is_open && calls_ahead(comm) != 0;
}

void Epochs::propose_wanted(CommKey comm, CommWatcher& watcher) {
  const std::optional<std::string> wanted = watcher.wanted_parameters();
  if (wanted) propose(comm, *wanted, 0);
}

void Epochs::pack(Packer& packer) const {
  const auto is_open = [](const auto& entry) { return entry.second.is_open; };
  packer.value(static_cast<std::uint32_t>(std::ranges::count_if(last_, is_open)));
  for (const auto& [comm, last] : last_) {
    if (!last.is_open) continue;
    const Proposal& proposal = last.proposal;
    packer.value(comm).value(proposal.version).value(proposal.first).text(proposal.blob);
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
