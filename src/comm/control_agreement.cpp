// The control plane's agreement: contributions go up, the root decides, results go to all.
#include <fmt/format.h>

#include <algorithm>

#include "comm/control_messages.hpp"

namespace pith {

namespace {

constexpr double second_ns = 1e9;
// Results are kept for ranks whose way to the root broke while it decided: those of communicators
// that are not over, at least so many, and more while they are small.
constexpr std::size_t least_results = 64;
constexpr std::size_t result_bytes_kept = 256 << 10;
constexpr std::size_t dropped_kept = 4096;
// A rank that has stopped does not answer the roll.
constexpr std::uint64_t roll_ns = 5'000'000'000;
// Those who wait hear for whom somewhat before their logs have a line, and of changes soon.
constexpr double missing_lead_s = 0.5;
constexpr std::uint64_t missing_again_ns = 300'000'000;

}  // namespace

void ControlPlane::gather(const GatherKey& key, Need need, const std::vector<int>& participants,
                          std::string blob, Done done, CallNote call) {
  const std::lock_guard lock(mutex_);
  Pending pending{need, participants, std::move(blob), std::move(done), now_ns_, std::move(call)};
  // It may have been decided without this rank.
  if (const auto known = results_.find(key); known != results_.end()) {
    return deliver(key, pending, known->second);
  }
  if (dropped_.contains(key)) return refuse(key, pending, too_late());
  if (is_dead(options_.rank)) {
    return refuse(key, pending, {Code::remote, "the other ranks could not reach this one"});
  }
  contribute(key, pending_[key] = std::move(pending));
}

void ControlPlane::contribute(const GatherKey& key, const Pending& pending) {
  send_up(pack_contribution(key, pending.need, pending.participants, options_.rank, pending.blob));
}

std::string ControlPlane::pack_contribution(const GatherKey& key, Need need,
                                            const std::vector<int>& participants, int rank,
                                            const std::string& blob) {
  Packer packer = message(Kind::contribution);
  packer.value(key.comm).value(key.round).value(need).numbers(participants);
  return packer.value(rank).text(blob).take();
}

// Nobody waits for whom somebody does not name: it may have stopped. What they disagree about they
// see by each other's words.
void ControlPlane::drop_unnamed(std::vector<int>& participants, const std::vector<int>& named) {
  for (std::size_t i = 0; i < participants.size(); ++i) {
    if (i >= named.size() || named[i] != participants[i]) participants[i] = -1;
  }
}

void ControlPlane::hear_contribution(Unpacker& in, const std::string& whole, int from) {
  const auto comm = in.value<CommKey>();
  const GatherKey key{comm, in.value<std::uint32_t>()};
  // It has been decided: the way back was cut.
  if (const auto known = results_.find(key); known != results_.end()) {
    if (from != options_.rank) wire_.send(from, known->second);
    return;
  }
  if (dropped_.contains(key)) {
    wire_.send(from, pack_result(key, too_late(), {}));
    return;
  }
  const auto need = in.value<Need>();
  const std::vector<int> participants = in.numbers();
  const int rank = in.value<int>();
  const std::string blob(in.text());
  if (!in.whole() || tell_if_over(comm, from)) return;
  Collecting& collecting = collecting_[key];
  if (collecting.participants.empty()) {
    collecting.need = need;
    collecting.participants = participants;
    collecting.since_ns = now_ns_;
  }
  if (need == Need::live) drop_unnamed(collecting.participants, participants);
  collecting.blobs[rank] = blob;
  if (!is_root()) send_up(whole);
}

void ControlPlane::hear_roll(Unpacker& in, const std::string& whole) {
  const int caller = in.value<int>();
  const auto facts = in.value<std::uint32_t>();
  if (!in.whole() || is_root()) return;
  roll_ = whole;
  send_down(whole);
  send_up(message(Kind::present).value(options_.rank).value(caller).value(facts).take());
}

void ControlPlane::hear_present(Unpacker& in, const std::string& whole) {
  if (!is_root()) return send_up(whole);
  const int rank = in.value<int>();
  const int caller = in.value<int>();
  if (caller == options_.rank && in.value<std::uint32_t>() == roll_facts_) present_.insert(rank);
}

// Called anew after every death or departure: what came from such a rank may have been on its way
// to one that had answered.
bool ControlPlane::all_present() {
  if (!must_call_roll_) return true;
  if (roll_since_ns_ == 0) roll_since_ns_ = now_ns_;
  const auto facts = static_cast<std::uint32_t>(dead_.size() + left_.size());
  if (facts != roll_facts_) {
    roll_facts_ = facts;
    present_ = {options_.rank};
    roll_ = message(Kind::roll).value(options_.rank).value(facts).take();
    send_down(roll_);
  }
  bool complete = now_ns_ - roll_since_ns_ > roll_ns;
  if (!complete) {
    complete = true;
    for (int rank = 0; rank < options_.ranks; ++rank) {
      complete &= !lives(rank) || present_.contains(rank);
    }
  }
  must_call_roll_ = !complete;
  return complete;
}

// What can be decided by now; a decision takes its entry out of the table.
void ControlPlane::decide_all() {
  if (!is_root() || collecting_.empty() || !all_present()) return;
  for (auto entry = collecting_.begin(); entry != collecting_.end();) {
    const auto next = std::next(entry);
    decide(entry->first, entry->second);
    entry = next;
  }
}

// Of an agreement that needs all. Who let go of it mostly did so because another one had died.
Error ControlPlane::cause_of_absence(int place, const std::vector<int>& participants) const {
  const auto has_died = [this](int rank) { return is_dead(rank); };
  if (!has_died(participants[static_cast<std::size_t>(place)])) {
    const auto dead = std::find_if(participants.begin(), participants.end(), has_died);
    if (dead != participants.end()) place = static_cast<int>(dead - participants.begin());
  }
  const auto how = dead_.find(participants[static_cast<std::size_t>(place)]);
  const bool ended = ended_.contains(participants[static_cast<std::size_t>(place)]);
  const std::string why = how != dead_.end() ? how->second : ended ? process_ended : "it has left";
  return {Code::remote, fmt::format("rank {}: {}", place, why), place};
}

void ControlPlane::decide(GatherKey key, Collecting& collecting) {
  const auto gone = gone_.find(key.comm);
  std::vector<int> missing;
  for (std::size_t i = 0; i < collecting.participants.size(); ++i) {
    const int rank = collecting.participants[i];
    const int place = static_cast<int>(i);
    if (rank < 0) continue;
    const bool let_go = gone != gone_.end() && gone->second.ranks.contains(rank);
    // Not known yet whether it is dead.
    const bool unsure = unreached_.contains(rank) && !is_dead(rank) && !left_.contains(rank);
    if ((lives(rank) || unsure) && !let_go) {
      if (!collecting.blobs.contains(rank)) missing.push_back(place);
    } else if (collecting.need == Need::all && !collecting.blobs.contains(rank)) {
      return conclude(key, cause_of_absence(place, collecting.participants), {});
    }
  }
  if (collecting.need == Need::all) {
    if (const auto cause = revoked_.find(key.comm); cause != revoked_.end()) {
      return conclude(key, cause->second, {});
    }
  }
  if (missing.empty()) return conclude(key, {}, collecting.blobs);
  tell_missing(key, collecting, missing);
  const double waited = static_cast<double>(now_ns_ - collecting.since_ns) / second_ns;
  if (options_.timeout_s == 0 || waited < options_.timeout_s) return;
  conclude(key,
           Error(Code::remote,
                 fmt::format("{} did not take part within {} s", list(missing), options_.timeout_s),
                 missing.front()),
           {});
}

// Only the root knows.
void ControlPlane::tell_missing(const GatherKey& key, Collecting& collecting,
                                const std::vector<int>& missing) {
  if (since(collecting.since_ns) + missing_lead_s < options_.warn_s) return;
  if (missing == collecting.missing || now_ns_ - collecting.told_ns < missing_again_ns) return;
  collecting.missing = missing;
  collecting.told_ns = now_ns_;
  const std::string whole =
      message(Kind::missing).value(key.comm).value(key.round).numbers(missing).take();
  Unpacker in(whole);
  in.value<Kind>();
  hear_missing(in, whole);
}

void ControlPlane::hear_missing(Unpacker& in, const std::string& whole) {
  send_down(whole);
  const auto comm = in.value<CommKey>();
  const auto found = pending_.find({comm, in.value<std::uint32_t>()});
  const std::vector<int> missing = in.numbers();
  if (in.whole() && found != pending_.end()) found->second.missing = missing;
}

Error ControlPlane::too_late() {
  return {Code::remote, "this has been decided so long ago that nobody knows how"};
}

std::string ControlPlane::pack_result(const GatherKey& key, const Error& error,
                                      const std::map<int, std::string>& blobs) const {
  Packer packer = message(Kind::result);
  packer.value(key.comm).value(key.round);
  pack(packer, error);
  packer.numbers(gone_for_good());
  packer.value(static_cast<std::uint32_t>(blobs.size()));
  for (const auto& [rank, blob] : blobs) packer.value(rank).text(blob);
  return packer.take();
}

void ControlPlane::conclude(GatherKey key, const Error& error,
                            const std::map<int, std::string>& blobs) {
  const std::string whole = pack_result(key, error, blobs);
  Unpacker in(whole);
  in.value<Kind>();
  hear_result(in, whole, -1);
}

void ControlPlane::keep_result(const GatherKey& key, std::string_view packed) {
  results_.emplace(key, packed);
  result_order_.push_back(key);
  result_bytes_ += packed.size();
  while (result_order_.size() > least_results && result_bytes_ > result_bytes_kept) drop_oldest();
}

// It is not taken again from those who still have it: it would push out newer ones.
void ControlPlane::drop_oldest() {
  const GatherKey oldest = result_order_.front();
  result_order_.pop_front();
  const auto found = results_.find(oldest);
  result_bytes_ -= found->second.size();
  results_.erase(found);
  dropped_.insert(oldest);
  dropped_order_.push_back(oldest);
  if (dropped_order_.size() <= dropped_kept) return;
  dropped_.erase(dropped_order_.front());
  dropped_order_.pop_front();
}

void ControlPlane::forget_results(CommKey comm) {
  std::erase_if(results_, [&](const auto& entry) {
    if (entry.first.comm != comm) return false;
    result_bytes_ -= entry.second.size();
    return true;
  });
  std::erase_if(result_order_, [&](const GatherKey& key) { return key.comm == comm; });
}

void ControlPlane::hear_result(Unpacker& in, const std::string& whole, int from) {
  const auto comm = in.value<CommKey>();
  const GatherKey key{comm, in.value<std::uint32_t>()};
  if (results_.contains(key) || dropped_.contains(key) || over_.contains(comm)) return;
  if (!unpack_result(in)) return;
  keep_result(key, whole);
  collecting_.erase(key);
  // Up as well: a new root may hear from somebody who has it before it decides itself.
  spread(whole, from);
  const auto found = pending_.find(key);
  if (found == pending_.end()) return;
  deliver(key, found->second, whole);
  pending_.erase(found);
}

void ControlPlane::deliver(const GatherKey& key, Pending& pending, std::string_view packed) {
  Unpacker in(packed);
  in.value<Kind>();
  in.value<CommKey>();
  in.value<std::uint32_t>();
  std::optional<GatherResult> result = unpack_result(in);
  if (!result) return;
  ready_.emplace_back(
      key.comm, [done = std::move(pending.done), result = std::move(*result)] { done(result); });
}

}  // namespace pith
