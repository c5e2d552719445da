#include "sim_job.hpp"

#include <algorithm>
#include <functional>

#include <fmt/format.h>

namespace pith::test {

namespace {

constexpr std::uint64_t quiet_ns = 3'000'000'000;    // until all know all
constexpr std::uint64_t limit_ns = 120'000'000'000;  // no program takes so long

std::uint32_t id_of(CommKey key) {
  return static_cast<std::uint32_t>(key ^ (key >> 32)) | 0x80000000u;
}

}  // namespace

SimComm::SimComm(World& world, ControlWorld& control, CommKey of, std::vector<int> among, int rank)
    : key(of), members(std::move(among)), own(rank), world_(world), control_(control) {
  state.id = id_of(key);
  for (const int peer : members) routes_.push_back({&world.transport(own), peer});
  context.scheduler = &world.sim().scheduler();
  context.arena = &world.arena(own);
  context.mailbox = &world.mailbox(own);
  context.compute = context.host = &world.compute(own);
  context.comm = &state;
  context.routes = routes_;
  context.rank = place_of(members, own);
  context.size = static_cast<int>(members.size());
  // The opening of two-shot and one-shot, though there is nothing to be seen.
  context.views = key % 2 == 0;
  context.revoke_context = this;
  context.revoke = [](void* self, const Error& error) {
    static_cast<SimComm*>(self)->revoke(error);
  };
}

void SimComm::revoke(const Error& error) {
  if (state.revoked) return;
  quiesce(error);
  if (!world_.sim().alive(own)) return;
  control_.plane(own).revoke(key, error);
  control_.turn_soon(own);
}

void SimComm::quiesce(const Error& error) {
  state.revoked = error;
  world_.mailbox(own).quiesce(state, error);
  world_.transport(own).quiesce(state, error);
}

Error SimComm::refuses_calls() {
  if (death) revoke(death);
  return state.revoked;
}

bool SimComm::waits_for(int rank) {
  bool waits = false;
  world_.mailbox(own).for_each_waiting(
      [&](int peer, const Tag& tag) { waits |= peer == rank && tag.comm == state.id; });
  return waits;
}

std::uint32_t SimComm::begin_call(const std::string& text) {
  const std::uint32_t number = calls() + 1;
  calls_.push_back({number, std::hash<std::string>()(text), text});
  running_.insert(number);
  return number;
}

std::optional<CallNote> SimComm::find_call(std::uint32_t number) {
  if (number == 0 || number > calls()) return std::nullopt;
  return calls_[number - 1];
}

// Tells of calls that last, whether they move or not: more than Communicator does.
std::optional<Stall> SimComm::look(std::uint64_t now_ns) {
  const std::uint32_t oldest = running_.empty() || state.revoked ? 0 : *running_.begin();
  if (oldest != watched_) {
    watched_ = oldest;
    watched_since_ns_ = now_ns;
  }
  if (oldest == 0) return std::nullopt;
  return Stall{*find_call(oldest), static_cast<double>(now_ns - watched_since_ns_) / 1e9, -1};
}

// --- the job ----------------------------------------------------------------------------------

SimJob::SimJob(SimConfig config, int fanout)
    : world_(std::move(config)),
      control_(world_.size(), fanout, world_.sim().config().seed, 0, host()),
      ranks_(at(world_.size())) {
  world_.sim().on_peer_lost = [this](int observer, int lost) { lose(observer, lost); };
}

// The planes' turns keep the simulation alive as long as somebody needs them.
ControlWorld::Host SimJob::host() {
  const auto now_ns = [this] { return static_cast<std::uint64_t>(world_.sim().now() / 1000) + 1; };
  return {now_ns, [this](std::uint64_t delay_ns, std::function<void()> run) {
            world_.sim().after(static_cast<double>(delay_ns) * 1e-9, std::move(run), !goes_on());
          }};
}

bool SimJob::goes_on() {
  const auto now_ns = static_cast<std::uint64_t>(world_.sim().now() / 1000);
  bool ended = started_;
  for (int rank = 0; rank < size() && ended; ++rank) ended = !alive(rank) || world_.ended(rank);
  if (ended && quiet_at_ns_ == 0) quiet_at_ns_ = now_ns + quiet_ns;
  return now_ns < (ended ? quiet_at_ns_ : limit_ns);
}

std::string SimJob::run(const Life& life) {
  world_.new_calls();
  std::vector<Task<Error>> tasks;
  for (int rank = 0; rank < size(); ++rank) tasks.push_back(life(world_.call(rank), rank));
  world_.start(std::move(tasks));
  started_ = true;
  world_.sim().run();
  for (int rank = 0; rank < size(); ++rank) check(rank);
  tidy_up();
  const std::vector<Error> errors = world_.finish();
  for (int rank = 0; rank < size(); ++rank) {
    const Error& error = errors[at(rank)];
    if (error && alive(rank)) complain(fmt::format("rank {}: {}", rank, error.message()));
  }
  if (wrong_.empty()) complain(world_.leaks());
  return wrong_;
}

void SimJob::complain(std::string what) {
  if (wrong_.empty()) wrong_ = std::move(what);
}

void SimJob::kill(int rank) {
  world_.sim().kill(rank, 0);
  control_.kill(rank);
}

void SimJob::lose(int observer, int lost) {
  for (const auto& comm : ranks_[at(observer)].comms) {
    if (!comm->waits_for(lost)) continue;
    const int place = place_of(comm->members, lost);
    comm->revoke(Error(Code::remote, fmt::format("rank {} is lost", place), place));
  }
}

SimComm* SimJob::newest(int rank) {
  const auto& comms = ranks_[at(rank)].comms;
  return comms.empty() ? nullptr : comms.back().get();
}

SimComm& SimJob::add(int rank, CommKey key, const std::vector<int>& members) {
  const auto [known, fresh] = members_.try_emplace(key, members);
  if (!fresh && known->second != members) {
    complain(fmt::format("rank {} is in a communicator of others than its peers think", rank));
  }
  auto& comms = ranks_[at(rank)].comms;
  comms.push_back(std::make_unique<SimComm>(world_, control_, key, members, rank));
  control_.plane(rank).add(key, members, *comms.back());
  return *comms.back();
}

void SimJob::let_go(SimComm& comm) {
  control_.plane(comm.own).remove(comm.key, comm.members);
  if (!comm.state.revoked) comm.quiesce(Error(Code::remote, "the communicator was destroyed"));
}

void SimJob::check(int rank) {
  if (!alive(rank)) return;
  if (!world_.ended(rank)) {
    const RankState& state = ranks_[at(rank)];
    return complain(fmt::format("rank {} does not end: {}", rank,
                                state.waiter ? "it waits for an agreement " + state.asked
                                             : world_.sim().deadlock_report()));
  }
  std::vector<int> dead;
  for (int other = 0; other < size(); ++other) {
    if (!alive(other)) dead.push_back(other);
  }
  const std::vector<int> known = control_.plane(rank).dead();
  if (known == dead) return;
  complain(fmt::format("rank {} takes {} for dead, it is {}", rank, fmt::join(known, " "),
                       fmt::join(dead, " ")));
}

// Whoever has not ended gets errors, the dead as well, so that no frame is left.
void SimJob::tidy_up() {
  const Error over(Code::internal, "the simulation is over");
  over_ = true;
  for (int rank = 0; rank < size(); ++rank) {
    if (!alive(rank)) world_.sim().bury(rank);
    world_.compute(rank).progress();
    for (const auto& comm : ranks_[at(rank)].comms) {
      if (!comm->state.revoked) comm->quiesce(over);
    }
    GatherResult none;
    none.error = over;
    decided(rank, none);
  }
  world_.sim().run();
  for (int rank = 0; rank < size(); ++rank) {
    // Also of communicators that this rank did not get to.
    for (const auto& [key, members] : members_) world_.mailbox(rank).forget(id_of(key));
  }
}

// --- agreements and what is made of them ------------------------------------------------------

bool SimJob::Agreement::await_suspend(std::coroutine_handle<> waiter) {
  if (job_.over_) {
    result_.error = Error(Code::internal, "the simulation is over");
    return false;
  }
  RankState& state = job_.ranks_[at(rank_)];
  state.waiter = waiter;
  state.result = &result_;
  state.asked = fmt::format("of communicator {:x}, round {:x}, among {}", question_.key.comm,
                            question_.key.round, fmt::join(question_.participants, " "));
  job_.control_.plane(rank_).gather(
      question_.key, question_.need, question_.participants, question_.blob,
      [job = &job_, rank = rank_](const GatherResult& result) { job->decided(rank, result); },
      question_.call);
  job_.control_.turn_soon(rank_);
  return true;
}

void SimJob::decided(int rank, const GatherResult& result) {
  RankState& state = ranks_[at(rank)];
  if (!state.waiter) return;
  *state.result = result;
  world_.sim().scheduler().make_ready(std::exchange(state.waiter, {}));
}

Task<Error> SimJob::pause(Call&, SimJob& job, double seconds) {
  Sleep sleep(job.world_.sim(), seconds);
  co_await sleep;
  co_return Error();
}

// As often as ranks that connect tell each other something.
Task<Error> SimJob::make(Call&, SimJob& job, const SimComm& parent, CommKey key,
                         std::vector<int> members, SimComm*& made) {
  if (!contains(members, parent.own)) co_return Error(Code::internal, "made without its maker");
  for (std::uint32_t round = 0; round < 2; ++round) {
    Agreement all(
        job, parent.own,
        {{key, round}, ControlPlane::Need::all, at_their_places(parent.members, members), "here"});
    const GatherResult result = co_await all;
    if (result.error) co_return result.error;
  }
  made = &job.add(parent.own, key, members);
  co_return Error();
}

Task<Error> SimJob::split(Call& frames, SimJob& job, SimComm& comm, int color, int key,
                          SimComm*& child) {
  if (comm.state.revoked) co_return comm.state.revoked;
  const std::uint32_t number = comm.begin_call("split");
  Split split(comm.key, comm.members, comm.own, comm.rounds, color, key);
  Agreement all(job, comm.own, split.question());
  const GatherResult result = co_await all;
  split.hear(result);
  comm.end_call(number);
  if (split.step() == ChildStep::end) co_return split.error();
  Task<Error> making = make(frames, job, comm, split.key(), split.members(), child);
  Error error = co_await std::move(making);
  co_return error;
}

Task<Error> SimJob::shrink(Call& frames, SimJob& job, SimComm& comm, std::vector<int> excluded,
                           std::vector<int> cut_off, std::uint64_t completed, Smaller& smaller) {
  static_cast<void>(comm.refuses_calls());
  const std::uint32_t next_call = comm.state.revoked ? 0 : comm.calls() + 1;
  Shrink shrink(comm.key, comm.members, comm.own, excluded, comm.rounds, next_call);
  while (shrink.step() != ChildStep::end) {
    if (!job.alive(comm.own)) co_return Error(Code::remote, "this rank is dead");
    if (shrink.step() == ChildStep::make) {
      Task<Error> making = make(frames, job, comm, shrink.key(), shrink.members(), smaller.comm);
      const Error error = co_await std::move(making);
      shrink.made(error);
      continue;
    }
    const Question question = shrink.question(completed, cut_off);
    if (!shrink.was_made()) job.told_[shrink.key()][comm.own] = completed;
    Agreement agreement(job, comm.own, question);
    const GatherResult result = co_await agreement;
    shrink.hear(result);
    smaller.completed = shrink.completed();
    if (shrink.built() || !smaller.comm) continue;
    if (job.alive(comm.own)) job.let_go(*smaller.comm);
    smaller.comm = nullptr;
  }
  if (shrink.built()) job.check_shrunk(shrink);
  co_return shrink.error();
}

void SimJob::check_shrunk(const Shrink& shrink) {
  const std::map<int, std::uint64_t>& told = told_[shrink.key()];
  std::uint64_t least = ~std::uint64_t{0};
  for (const int member : shrink.members()) {
    const auto said = told.find(member);
    if (said == told.end()) return complain(fmt::format("rank {} did not shrink", member));
    least = std::min(least, said->second);
  }
  if (least == shrink.completed()) return;
  complain(fmt::format("all are said to have completed {} calls, and it is {}", shrink.completed(),
                       least));
}

}  // namespace pith::test
