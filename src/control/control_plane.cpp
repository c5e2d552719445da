#include "control/control_plane.hpp"

#include <fmt/format.h>

#include <optional>
#include <set>
#include <utility>

#include "control/members.hpp"

namespace pith {

namespace {

// A longer time between two turns means that this process was stopped, with messages still unread.
constexpr std::uint64_t pause_ns = 500'000'000;

Stalls look_at_calls(const std::vector<std::pair<CommKey, CommWatcher*>>& watched,
                     std::uint64_t now_ns, double least_s) {
  Stalls stalls;
  for (const auto& [comm, watcher] : watched) {
    std::optional<Stall> stall = watcher->look(now_ns);
    if (stall && stall->seconds >= least_s) stalls.emplace(comm, std::move(*stall));
  }
  return stalls;
}

}  // namespace

ControlPlane::ControlPlane(const ControlOptions& options, ControlWire& wire)
    : context_(options),
      tree_(context_, wire, [this](const std::string& text) { hear(context_.options.rank, text); }),
      watchers_(options.rank),
      revocation_(context_, tree_),
      agreement_(context_, tree_, revocation_, watchers_),
      epochs_(context_, tree_, revocation_, watchers_, agreement_),
      parent_watch_(context_, tree_, revocation_, watchers_, agreement_),
      stall_watch_(context_, tree_, revocation_, watchers_, agreement_, parent_watch_) {}

void ControlPlane::start(std::uint64_t now_ns) {
  const std::lock_guard lock(mutex_);
  context_.now_ns = now_ns;
  context_.started = true;
  refresh_tree();
}

bool ControlPlane::try_to_leave(bool ends) {
  const std::lock_guard lock(mutex_);
  if (!context_.started || context_.membership.is_dead(context_.options.rank)) return true;
  return tree_.try_to_leave(ends);
}

void ControlPlane::close() {
  const std::lock_guard lock(mutex_);
  if (context_.started) tree_.leave_now();
  context_.started = false;
}

// --- membership and the tree ------------------------------------------------------------------

// A new parent is told all facts.
void ControlPlane::refresh_tree() {
  if (!context_.started || !tree_.refresh()) return;
  parent_watch_.on_new_parent();
  revocation_.check_all();
  if (tree_.is_root()) {
    agreement_.roll().begin();
  } else {
    // Results first: a fact must not overtake the result of an agreement that was decided before
    // it.
    agreement_.send_results();
    tree_.send_up(all_facts(MessageKind::hello));
  }
  agreement_.contribute_again();
}

std::string ControlPlane::all_facts(MessageKind kind) const {
  Packer packer = message(kind);
  context_.membership.pack(packer);
  revocation_.pack(packer);
  epochs_.pack(packer);
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
  revocation_.hear(in, from);
  epochs_.hear(in, from);
}

void ControlPlane::note_dead(int rank, std::string_view how, int from) {
  const bool own = rank == context_.options.rank;
  if (own) how = "the other ranks could not reach it";
  if (!context_.membership.add_dead(rank, how)) return;
  if (own) agreement_.refuse_all(unreachable_self());
  tree_.remove_child(rank);
  revocation_.check_all();
  tree_.spread(death_message(rank, how), from);
  refresh_tree();
}

void ControlPlane::note_left(int rank, bool ended, int from) {
  if (!context_.membership.exists(rank) || rank == context_.options.rank) return;
  if (from == rank) tree_.send(rank, message(MessageKind::farewell).take());
  const Membership::News news = context_.membership.add_left(rank, ended);
  if (news == Membership::News::nothing) return;
  tree_.spread(departure_message(rank, ended), from);
  if (news == Membership::News::ended) return;
  tree_.remove_child(rank);
  revocation_.check_all();
  refresh_tree();
}

void ControlPlane::note_over(CommKey comm, int from) {
  if (!revocation_.end(comm, from)) return;
  agreement_.forget(comm);
  epochs_.forget(comm);
  stall_watch_.forget(comm);
}

void ControlPlane::on_lost(int rank, std::string_view how) {
  const std::lock_guard lock(mutex_);
  note_dead(rank, how, -1);
}

// That rank's neighbours know how it ended; what they know comes with the next parent's facts.
void ControlPlane::on_unreachable(int rank, std::string_view how) {
  const std::lock_guard lock(mutex_);
  if (!context_.started || !context_.membership.lives(rank)) return;
  context_.membership.add_unreached(rank, how, context_.now_ns);
  refresh_tree();
}

// A parent closes the connection to a child only when it leaves.
void ControlPlane::on_hung_up(int rank) {
  const std::lock_guard lock(mutex_);
  if (!context_.started) return;
  if (rank == tree_.parent()) return note_left(rank, false, -1);
  tree_.remove_child(rank);
}

// --- communicators ----------------------------------------------------------------------------

void ControlPlane::add(CommKey comm, std::vector<int> members, CommWatcher& watcher) {
  const std::lock_guard lock(mutex_);
  watchers_.add(comm, std::move(members), watcher);
  epochs_.on_added(comm);
}

void ControlPlane::remove(CommKey comm, const std::vector<int>& members) {
  const std::lock_guard calling(calling_);
  const std::lock_guard lock(mutex_);
  watchers_.remove(comm);
  agreement_.remove(comm);
  revocation_.release(comm, members, context_.options.rank, -1);
}

void ControlPlane::revoke(CommKey comm, const Error& error, bool known) {
  const std::lock_guard lock(mutex_);
  Watchers::Member* member = watchers_.find(comm);
  if (member && known) member->told = true;
  revocation_.revoke(comm, member ? member->ranks : std::vector<int>(), error, -1);
}

void ControlPlane::suspect(CommKey comm, const CallNote& call) {
  const std::lock_guard lock(mutex_);
  stall_watch_.suspect(comm, call);
}

void ControlPlane::gather(const GatherKey& key, Need need, const std::vector<int>& participants,
                          std::string blob, Done done, CallNote call) {
  const std::lock_guard lock(mutex_);
  agreement_.gather({key, need, participants, context_.options.rank, std::move(blob)},
                    std::move(done), std::move(call));
}

bool ControlPlane::propose(CommKey comm, const std::string& blob) {
  const std::lock_guard lock(mutex_);
  return context_.started && epochs_.propose(comm, blob);
}

std::vector<CommKey> ControlPlane::remembered() const {
  const std::lock_guard lock(mutex_);
  std::set<CommKey> known;
  revocation_.add_known(known);
  agreement_.add_known(known);
  epochs_.add_known(known);
  stall_watch_.add_known(known);
  for (const auto& [comm, member] : watchers_.all()) known.insert(comm);
  return {known.begin(), known.end()};
}

// --- messages ---------------------------------------------------------------------------------

void ControlPlane::on_message(int from, std::string_view text) {
  const std::lock_guard lock(mutex_);
  if (!context_.started || !context_.membership.exists(from)) return;
  if (!context_.membership.is_dead(from)) return hear(from, text);
  // The others have given it up: only its hello is answered, with the facts that say so.
  if (Unpacker(text).value<MessageKind>() != MessageKind::hello) return;
  tree_.send(from, all_facts(MessageKind::facts));
}

void ControlPlane::hear(int from, std::string_view text) {
  Unpacker in(text);
  if (from == tree_.parent()) parent_watch_.on_heard();
  if (tree_.heard(from)) refresh_tree();
  const auto kind = in.value<MessageKind>();
  if (wants_answer(kind)) tree_.answer(from);
  const std::string whole(text);
  switch (kind) {
    case MessageKind::hello:
      if (from <= context_.options.rank) return;
      tree_.add_child(from);
      hear_facts(in, from);
      tree_.send(from, all_facts(MessageKind::facts));
      agreement_.roll().tell(from);
      return tree_.tell_of_leaving(from);
    case MessageKind::facts:
      return hear_facts(in, from);
    case MessageKind::dead: {
      const int rank = in.value<int>();
      return note_dead(rank, in.text(), from);
    }
    case MessageKind::left: {
      const int rank = in.value<int>();
      return note_left(rank, in.value<std::uint8_t>() != 0, from);
    }
    case MessageKind::farewell:
      return tree_.on_farewell(from);
    case MessageKind::released:
      return revocation_.hear_released(in, from);
    case MessageKind::over: {
      const auto comm = in.value<CommKey>();
      if (in.whole()) note_over(comm, from);
      return;
    }
    case MessageKind::revoked:
      return revocation_.hear_revoked(in, from);
    case MessageKind::proposal:
      return epochs_.hear_proposal(in, from);
    case MessageKind::contribution:
      return agreement_.hear_contribution(in, whole, from);
    case MessageKind::result:
      return agreement_.hear_result(in, whole, from);
    case MessageKind::missing:
      return agreement_.hear_missing(in, whole);
    case MessageKind::roll:
      return agreement_.roll().hear_roll(in, whole);
    case MessageKind::present:
      return agreement_.roll().hear_present(in, whole);
    case MessageKind::stall:
      return stall_watch_.hear_stall(in, whole);
    case MessageKind::question:
      return stall_watch_.hear_question(in, whole);
    case MessageKind::answer:
      return stall_watch_.hear_answer(in, whole);
    case MessageKind::ping:
    case MessageKind::pong:
      return;
  }
}

// --- time -------------------------------------------------------------------------------------

void ControlPlane::watch_parent(const Stalls& stalls) {
  switch (parent_watch_.watch(stalls)) {
    case ParentWatch::Verdict::nothing:
      return;
    case ParentWatch::Verdict::pass_by:
      // It may continue at any time and is not what others wait for, so it is not declared dead.
      tree_.pass_by_parent();
      return refresh_tree();
    case ParentWatch::Verdict::give_up: {
      // It blocks the way to other ranks and was left out of the agreement. It is told when it
      // wakes up.
      const int parent = tree_.parent();
      const std::string how =
          fmt::format("it was left out and has not answered for {:.0f} s", parent_watch_.silence());
      tree_.send(parent, death_message(parent, how));
      return note_dead(parent, how, -1);
    }
  }
}

void ControlPlane::turn(std::uint64_t now_ns) {
  const std::lock_guard calling(calling_);
  std::vector<std::pair<CommKey, CommWatcher*>> watched;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [comm, member] : watchers_.all()) watched.emplace_back(comm, member.watcher);
  }
  // Without the lock, as watchers may use this class. remove() waits for the end of the turn.
  const Stalls stalls = look_at_calls(watched, now_ns, context_.options.report_s);
  Watchers::Calls calls;
  {
    const std::lock_guard lock(mutex_);
    const bool paused = now_ns - context_.now_ns > pause_ns;
    context_.now_ns = now_ns;
    if (paused) parent_watch_.on_heard();
    if (context_.started) {
      for (const auto& [rank, how] : context_.membership.overdue(now_ns)) note_dead(rank, how, -1);
      tree_.probe_late_children();
      epochs_.turn();
      agreement_.decide_all();
      for (const CommKey comm : revocation_.find_over()) note_over(comm, -1);
      stall_watch_.turn(stalls);
      watch_parent(stalls);
    }
    watchers_.tell_later(revocation_.all(), context_.membership);
    calls = watchers_.take_calls();
  }
  for (const auto& [comm, call] : calls) call();
}

}  // namespace pith
