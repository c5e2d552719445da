#include "comm/control_plane.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "comm/control_messages.hpp"

namespace pith {

namespace {

constexpr std::uint64_t inquiry_kept_ns = 10'000'000'000;
// Whoever knows that an unreachable rank has left in order says so within this time.
constexpr std::uint64_t unreached_ns = 300'000'000;
// A child that has not called after so long may have died with its last parent, unseen.
constexpr std::uint64_t awaited_ns = 300'000'000;
// Those who have heard of a departure do not call any more, others may be about to.
constexpr std::uint64_t farewell_ns = 100'000'000;
// Between two turns: this process stood still, and was not told what has been said meanwhile.
constexpr std::uint64_t pause_ns = 500'000'000;

}  // namespace

Packer ControlPlane::message(Kind kind) {
  Packer packer;
  packer.value(kind);
  return packer;
}

ControlPlane::ControlPlane(const ControlOptions& options, ControlWire& wire)
    : options_(options), wire_(wire) {}

void ControlPlane::start(std::uint64_t now_ns) {
  const std::lock_guard lock(mutex_);
  now_ns_ = now_ns;
  started_ = true;
  refresh_tree();
}

bool ControlPlane::try_to_leave(bool ends) {
  const std::lock_guard lock(mutex_);
  if (!started_ || is_dead(options_.rank)) return true;
  leaving_ = true;
  ending_ |= ends;
  if (!announced_) announce_departure();
  return announced_ && (is_root() || acknowledged_);
}

// Once all who have this rank for their parent have called: who calls later would find nobody.
void ControlPlane::announce_departure() {
  const std::vector<int> expected = expected_children();
  const auto has_called = [this](int rank) { return children_.contains(rank); };
  const bool complete = std::all_of(expected.begin(), expected.end(), has_called);
  const bool waited = farewell_said_ && now_ns_ - parent_since_ns_ > farewell_ns;
  if (!complete && !waited) return;
  announced_ = farewell_said_ = true;
  spread(departure(options_.rank, ending_), -1);
}

std::string ControlPlane::departure(int rank, bool ended) {
  return message(Kind::left).value(rank).value(static_cast<std::uint8_t>(ended)).take();
}

void ControlPlane::close() {
  const std::lock_guard lock(mutex_);
  // Who could not wait for all its children tells those that there are.
  if (started_ && leaving_ && !announced_) spread(departure(options_.rank, ending_), -1);
  started_ = false;
}

// --- the tree ---------------------------------------------------------------------------------

std::vector<int> ControlPlane::expected_children() const {
  std::vector<int> live;
  for (int rank = 0; rank < options_.ranks; ++rank) {
    if (rank == options_.rank || lives(rank)) live.push_back(rank);
  }
  const auto self = std::find(live.begin(), live.end(), options_.rank) - live.begin();
  const auto first = static_cast<std::size_t>(self * options_.fanout + 1);
  const std::size_t last = std::min(live.size(), first + static_cast<std::size_t>(options_.fanout));
  if (first >= last) return {};
  return {live.begin() + static_cast<std::ptrdiff_t>(first),
          live.begin() + static_cast<std::ptrdiff_t>(last)};
}

std::size_t ControlPlane::neighbours() const {
  const std::lock_guard lock(mutex_);
  return expected_children().size() + (parent_ >= 0 ? 1 : 0);
}

// The parent among those that live, as far as is known here. A new one is told everything.
void ControlPlane::refresh_tree() {
  if (!started_) return;
  std::vector<int> live;
  for (int rank = 0; rank <= options_.rank; ++rank) {
    if (rank == options_.rank || lives(rank)) live.push_back(rank);
  }
  int parent = -1;
  for (auto place = static_cast<int>(live.size()) - 1; place > 0;) {
    place = (place - 1) / options_.fanout;
    parent = live[static_cast<std::size_t>(place)];
    if (!passed_by_.contains(parent)) break;
  }
  if (parent == parent_) return;
  const int old = std::exchange(parent_, parent);
  announced_ = acknowledged_ = false;
  look_at_all_gone();
  parent_since_ns_ = now_ns_;
  pinged_ns_ = 0;  // it was another one's silence
  // Who is passed by is heard when it wakes up, and has told its children all until then.
  if (old >= 0 && lives(old) && !passed_by_.contains(old)) wire_.hang_up(old);
  if (parent_ < 0) {
    must_call_roll_ = true;
    roll_since_ns_ = 0;
    roll_facts_ = ~0u;
  }
  if (parent_ >= 0) say_hello();
  // What the last parent was told may be lost with it.
  for (const auto& [key, pending] : pending_) contribute(key, pending);
  if (parent_ < 0) return;
  for (const auto& [key, collecting] : collecting_) {
    for (const auto& [rank, blob] : collecting.blobs) {
      wire_.send(parent_,
                 pack_contribution(key, collecting.need, collecting.participants, rank, blob));
    }
  }
}

// Results first: a fact must not overtake the result that somebody waited for before it came true.
void ControlPlane::say_hello() {
  for (const GatherKey& key : result_order_) wire_.send(parent_, results_[key]);
  wire_.send(parent_, message(Kind::hello).take() + all_facts());
}

void ControlPlane::hear_hello(Unpacker& in, int from) {
  if (from <= options_.rank) return;
  children_.insert(from);
  hear_facts(in, from);
  wire_.send(from, message(Kind::facts).take() + all_facts());
  if (!roll_.empty()) wire_.send(from, roll_);
  if (announced_) wire_.send(from, departure(options_.rank, ending_));
}

std::string ControlPlane::all_facts() const {
  Packer packer;
  packer.value(static_cast<std::uint32_t>(dead_.size()));
  for (const auto& [rank, how] : dead_) packer.value(rank).text(how);
  packer.numbers({left_.begin(), left_.end()}).numbers({ended_.begin(), ended_.end()});
  packer.value(static_cast<std::uint32_t>(revoked_.size()));
  for (const auto& [comm, error] : revoked_) {
    const auto gone = gone_.find(comm);
    packer.value(comm).numbers(gone == gone_.end() ? std::vector<int>() : gone->second.members);
    pack(packer, error);
  }
  packer.value(static_cast<std::uint32_t>(gone_.size()));
  for (const auto& [comm, gone] : gone_) {
    packer.value(comm).numbers(gone.members).numbers({gone.ranks.begin(), gone.ranks.end()});
  }
  return packer.take();
}

void ControlPlane::hear_facts(Unpacker& in, int from) {
  const auto deaths = in.value<std::uint32_t>();
  for (std::uint32_t i = 0; i < deaths && in.whole(); ++i) {
    const int rank = in.value<int>();
    note_dead(rank, in.text(), from);
  }
  const std::vector<int> left = in.numbers();
  const std::vector<int> ended = in.numbers();
  for (const int rank : left) note_left(rank, contains(ended, rank), from);
  const auto revocations = in.value<std::uint32_t>();
  for (std::uint32_t i = 0; i < revocations && in.whole(); ++i) {
    const auto comm = in.value<CommKey>();
    const std::vector<int> members = in.numbers();
    note_revoked(comm, members, unpack_error(in), from);
  }
  const auto gone = in.value<std::uint32_t>();
  for (std::uint32_t i = 0; i < gone && in.whole(); ++i) {
    const auto comm = in.value<CommKey>();
    const std::vector<int> members = in.numbers();
    for (const int rank : in.numbers()) note_gone(comm, members, rank, from);
  }
}

// To all neighbours but the one it came from.
void ControlPlane::spread(const std::string& text, int except) {
  if (parent_ >= 0 && parent_ != except && lives(parent_)) wire_.send(parent_, text);
  for (const int child : children_) {
    if (child != except) wire_.send(child, text);
  }
}

// To the root, which may be this rank.
void ControlPlane::send_up(const std::string& text) {
  if (is_root()) {
    hear(options_.rank, text);
  } else {
    wire_.send(parent_, text);
  }
}

void ControlPlane::send_down(const std::string& text) {
  for (const int child : children_) wire_.send(child, text);
}

// What this rank would say again and again: not to who does not answer.
void ControlPlane::ask(int neighbour, const std::string& text) {
  const auto [unanswered, first] = unanswered_since_ns_.try_emplace(neighbour, now_ns_);
  if (first || since(unanswered->second) <= silent_s) wire_.send(neighbour, text);
}

void ControlPlane::acknowledge(int from) {
  const bool neighbour = from == parent_ || from > options_.rank;
  if (neighbour) wire_.send(from, message(Kind::pong).take());
}

// --- facts ------------------------------------------------------------------------------------

void ControlPlane::note_dead(int rank, std::string_view how, int from) {
  if (rank < 0 || rank >= options_.ranks || dead_.contains(rank) || left_.contains(rank)) return;
  if (rank == options_.rank) how = "the other ranks could not reach it";
  dead_.emplace(rank, how);
  if (rank == options_.rank) give_up();
  children_.erase(rank);
  look_at_all_gone();
  spread(message(Kind::dead).value(rank).text(how).take(), from);
  refresh_tree();
}

// The others go on without this rank: what it waits for will not come.
void ControlPlane::give_up() {
  const Error error(Code::remote, "the other ranks could not reach this one");
  for (auto& [key, pending] : pending_) refuse(key, pending, error);
  pending_.clear();
}

void ControlPlane::refuse(const GatherKey& key, Pending& pending, const Error& error) {
  GatherResult result;
  result.error = error;
  ready_.emplace_back(key.comm, [done = std::move(pending.done), result] { done(result); });
}

void ControlPlane::note_left(int rank, bool ended, int from) {
  if (rank < 0 || rank >= options_.ranks || rank == options_.rank) return;
  if (from == rank) wire_.send(rank, message(Kind::farewell).take());
  const bool left_before = !left_.insert(rank).second;
  const bool ended_before = !ended || !ended_.insert(rank).second;
  if (left_before && ended_before) return;
  spread(departure(rank, ended), from);
  if (left_before) return;
  children_.erase(rank);
  look_at_all_gone();
  refresh_tree();
}

void ControlPlane::note_revoked(CommKey comm, const std::vector<int>& members, const Error& error,
                                int from) {
  if (!error || tell_if_over(comm, from) || !revoked_.emplace(comm, error).second) return;
  // All of them may die before one can let go of it.
  if (!members.empty()) gone_.try_emplace(comm, Gone{members, {}});
  maybe_over_.insert(comm);
  Packer packer = message(Kind::revoked);
  packer.value(comm).numbers(members);
  pack(packer, error);
  spread(packer.take(), from);
}

void ControlPlane::on_lost(int rank, std::string_view how) {
  const std::lock_guard lock(mutex_);
  note_dead(rank, how, -1);
}

// Its neighbours know how it ended, and what they know comes with the next parent's facts.
void ControlPlane::on_unreachable(int rank, std::string_view how) {
  const std::lock_guard lock(mutex_);
  if (!started_ || !lives(rank)) return;
  unreached_.insert_or_assign(rank, Unreached{std::string(how), now_ns_});
  refresh_tree();
}

void ControlPlane::give_up_unreached() {
  std::vector<std::pair<int, std::string>> lost;
  for (const auto& [rank, unreached] : unreached_) {
    if (now_ns_ - unreached.since_ns > unreached_ns) lost.emplace_back(rank, unreached.how);
  }
  for (const auto& [rank, how] : lost) {
    note_dead(rank, how, -1);
    unreached_.erase(rank);
  }
}

void ControlPlane::look_for_children() {
  std::map<int, std::uint64_t> awaited;
  for (const int rank : expected_children()) {
    if (children_.contains(rank)) continue;
    const auto known = awaited_since_ns_.find(rank);
    std::uint64_t since_ns = known == awaited_since_ns_.end() ? now_ns_ : known->second;
    if (now_ns_ - since_ns > awaited_ns) {
      wire_.probe(rank);
      since_ns = now_ns_;
    }
    awaited.emplace(rank, since_ns);
  }
  awaited_since_ns_.swap(awaited);
}

// Nobody lets go of a child, unless it leaves.
void ControlPlane::on_hung_up(int rank) {
  const std::lock_guard lock(mutex_);
  if (!started_) return;
  if (rank == parent_) return note_left(rank, false, -1);
  children_.erase(rank);
}

// --- communicators ----------------------------------------------------------------------------

void ControlPlane::add(CommKey comm, std::vector<int> members, CommWatcher& watcher) {
  const std::lock_guard lock(mutex_);
  Member member;
  member.ranks = std::move(members);
  member.watcher = &watcher;
  members_.insert_or_assign(comm, std::move(member));
}

void ControlPlane::remove(CommKey comm, const std::vector<int>& members) {
  const std::lock_guard calling(calling_);
  const std::lock_guard lock(mutex_);
  members_.erase(comm);
  std::erase_if(pending_, [&](const auto& entry) { return entry.first.comm == comm; });
  std::erase_if(ready_, [&](const auto& entry) { return entry.first == comm; });
  note_gone(comm, members, options_.rank, -1);
}

void ControlPlane::revoke(CommKey comm, const Error& error, bool known) {
  const std::lock_guard lock(mutex_);
  const auto found = members_.find(comm);
  std::vector<int> members;
  if (found != members_.end()) {
    if (known) found->second.told = true;
    members = found->second.ranks;
  }
  note_revoked(comm, members, error, -1);
}

void ControlPlane::tell_watchers() {
  for (auto& [comm, member] : members_) {
    const auto found = revoked_.find(comm);
    if (found != revoked_.end()) tell_revoked(comm, member, found->second);
    tell_of_dead(comm, member);
  }
}

void ControlPlane::tell_revoked(CommKey comm, Member& member, const Error& error) {
  if (std::exchange(member.told, true)) return;
  ready_.emplace_back(comm, [watcher = member.watcher, error] { watcher->on_revoked(error); });
}

// Who is given up itself can do nothing with the others any more.
void ControlPlane::tell_of_dead(CommKey comm, Member& member) {
  for (const auto& [rank, how] : dead_) {
    const int place = place_of(member.ranks, rank);
    if (place < 0 || !is_dead(rank) || !member.told_dead.insert(rank).second) continue;
    const Error error(Code::remote, fmt::format("rank {}: {}", place, how), place);
    if (rank == options_.rank) {
      tell_revoked(comm, member, error);
    } else {
      ready_.emplace_back(comm, [watcher = member.watcher, error] { watcher->on_dead(error); });
    }
  }
}

std::vector<int> ControlPlane::dead() const {
  const std::lock_guard lock(mutex_);
  return gone_for_good();
}

std::vector<int> ControlPlane::gone_for_good() const {
  std::set<int> ranks = ended_;
  for (const auto& [rank, how] : dead_) {
    if (is_dead(rank)) ranks.insert(rank);
  }
  return {ranks.begin(), ranks.end()};
}

bool ControlPlane::any_died() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(dead_, [this](const auto& death) { return is_dead(death.first); });
}

std::string ControlPlane::cause_of(int rank) const {
  const std::lock_guard lock(mutex_);
  if (ended_.contains(rank)) return process_ended;
  const auto found = dead_.find(rank);
  return found == dead_.end() ? std::string() : found->second;
}

Error ControlPlane::revocation_of(CommKey comm) const {
  const std::lock_guard lock(mutex_);
  const auto found = revoked_.find(comm);
  return found == revoked_.end() ? Error() : found->second;
}

int ControlPlane::parent() const {
  const std::lock_guard lock(mutex_);
  return parent_;
}

// --- messages ---------------------------------------------------------------------------------

void ControlPlane::on_message(int from, std::string_view text) {
  const std::lock_guard lock(mutex_);
  if (!started_ || from < 0 || from >= options_.ranks) return;
  if (!is_dead(from)) return hear(from, text);
  // Given up by all others: whatever it says, it is told so, and nothing else.
  if (Unpacker(text).value<Kind>() != Kind::hello) return;
  wire_.send(from, message(Kind::facts).take() + all_facts());
}

void ControlPlane::hear(int from, std::string_view text) {
  Unpacker in(text);
  unanswered_since_ns_.erase(from);
  if (from == parent_) parent_heard_ns_ = now_ns_;
  if (passed_by_.erase(from) > 0) refresh_tree();
  const auto kind = in.value<Kind>();
  if (wants_answer(kind)) acknowledge(from);
  switch (kind) {
    case Kind::hello:
      hear_hello(in, from);
      break;
    case Kind::facts:
      hear_facts(in, from);
      break;
    case Kind::dead: {
      const int rank = in.value<int>();
      note_dead(rank, in.text(), from);
      break;
    }
    case Kind::left: {
      const int rank = in.value<int>();
      note_left(rank, in.value<std::uint8_t>() != 0, from);
      break;
    }
    case Kind::farewell:
      acknowledged_ |= from == parent_;
      break;
    case Kind::gone:
      hear_gone(in, from);
      break;
    case Kind::over: {
      const auto comm = in.value<CommKey>();
      if (in.whole()) note_over(comm, from);
      break;
    }
    case Kind::revoked: {
      const auto comm = in.value<CommKey>();
      const std::vector<int> members = in.numbers();
      note_revoked(comm, members, unpack_error(in), from);
      break;
    }
    case Kind::contribution:
      hear_contribution(in, std::string(text), from);
      break;
    case Kind::stall:
      hear_stall(in, std::string(text));
      break;
    case Kind::answer:
      hear_answer(in, std::string(text));
      break;
    case Kind::result:
      hear_result(in, std::string(text), from);
      break;
    case Kind::question:
      hear_question(in, std::string(text));
      break;
    case Kind::ping:
    case Kind::pong:
      break;
    case Kind::roll:
      hear_roll(in, std::string(text));
      break;
    case Kind::present:
      hear_present(in, std::string(text));
      break;
    case Kind::missing:
      hear_missing(in, std::string(text));
      break;
  }
}

// --- time -------------------------------------------------------------------------------------

void ControlPlane::turn(std::uint64_t now_ns) {
  const std::lock_guard calling(calling_);
  const Stalls stalls = look_for_stalls(now_ns);
  std::vector<std::pair<CommKey, std::function<void()>>> calls;
  {
    const std::lock_guard lock(mutex_);
    const bool paused = now_ns - now_ns_ > pause_ns;
    now_ns_ = now_ns;
    if (paused) parent_heard_ns_ = now_ns;
    if (started_) {
      give_up_unreached();
      look_for_children();
      decide_all();
      find_over();
      inquire_again();
      report(stalls);
      report_agreements();
      warn_of_agreements();
      watch_parent(stalls);
      std::erase_if(inquiries_, [&](const auto& entry) {
        return now_ns_ - entry.second.asked_ns > inquiry_kept_ns;
      });
      forget_standing();
    }
    tell_watchers();
    calls.swap(ready_);
  }
  for (const auto& [comm, call] : calls) call();
}

}  // namespace pith
