// Random programs on ranks that die: collectives and splits in virtual time, the control plane
// beside them, and shrinks whenever something fails. Every program must end, the survivors agree on
// who died, and every collective that all ranks of a communicator finished is right.
//
// PITH_TEST_SEEDS=n runs n seeds; PITH_TEST_SEED=s runs that one, which is what a failure prints.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <numeric>
#include <vector>

#include "comm/survivors.hpp"
#include "comm/world.hpp"
#include "control_world.hpp"
#include "core/mix.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/dense_program.hpp"

namespace pith::test {

namespace {

// As in comm/descendants.cpp.
constexpr CommKey job_key = 1;
constexpr std::uint32_t split_base = 0x10000000;
constexpr std::uint32_t shrink_base = 0x40000000;
constexpr std::uint64_t split_mark = 0x73706c6974;
constexpr std::uint64_t shrink_mark = 0x736872696e6b;

constexpr std::uint64_t quiet_ns = 3'000'000'000;    // until all know all
constexpr std::uint64_t limit_ns = 120'000'000'000;  // no program takes so long

using Need = ControlPlane::Need;

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : seed_(seed) {}
  std::size_t below(std::size_t n) { return random_bits(seed_, 99, ++count_) % n; }
  double uniform() { return static_cast<double>(below(1 << 20)) / (1 << 20); }

 private:
  std::uint64_t seed_;
  std::uint64_t count_ = 0;
};

std::uint32_t id_of(CommKey key) {
  return static_cast<std::uint32_t>(key ^ (key >> 32)) | 0x80000000u;
}

// One rank's communicator, joined to the control plane as Communicator is.
class Comm final : public CommWatcher {
 public:
  Comm(World& world, ControlWorld& control, CommKey key_, std::vector<int> members_, int own_)
      : key(key_), members(std::move(members_)), own(own_), world_(world), control_(control) {
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
    context.revoke_context = this;
    context.revoke = [](void* self, const Error& error) {
      static_cast<Comm*>(self)->revoke(error);
    };
  }

  void revoke(const Error& error) {
    if (state.revoked) return;
    quiesce(error);
    if (!world_.sim().alive(own)) return;
    control_.plane(own).revoke(key, error);
    control_.turn_soon(own);
  }
  void quiesce(const Error& error) {
    state.revoked = error;
    world_.mailbox(own).quiesce(state, error);
    world_.transport(own).quiesce(state, error);
  }
  void on_revoked(const Error& error) override { revoke(error); }
  std::optional<CallNote> find_call(std::uint32_t) override { return std::nullopt; }
  std::optional<Stall> look(std::uint64_t) override { return std::nullopt; }
  void on_stalled(const Stall&) override {}

  const CommKey key;
  const std::vector<int> members;
  const int own;  // rank of the job
  CommState state;
  CallContext context;
  std::uint32_t calls = 0;
  std::uint32_t splits = 0;
  std::uint32_t shrinks = 0;

 private:
  World& world_;
  ControlWorld& control_;
  std::vector<Route> routes_;
};

// A collective of one communicator with the memory of all its ranks.
struct Collected {
  explicit Collected(const DenseCase& c) : dense(c), size(c.ranks), name(describe(c)) {}
  DenseProgram dense;
  int size;
  std::string name;
  int succeeded = 0;
};

class Story {
 public:
  explicit Story(std::uint64_t seed)
      : seed_(seed),
        dice_(seed),
        world_(config()),
        control_(world_.size(), dice_.below(3) == 0 ? 32 : 2, seed, 0, host()),
        ranks_(static_cast<std::size_t>(world_.size())) {
    for (std::size_t i = 3 + dice_.below(5); i > 0; --i) ops_.push_back(dice_.below(4) == 0);
    draw_deaths();
    world_.sim().on_peer_lost = [this](int observer, int lost) { lose(observer, lost); };
  }

  // Empty, or what went wrong.
  std::string run() {
    world_.new_calls();
    std::vector<Task<Error>> tasks;
    for (int rank = 0; rank < world_.size(); ++rank) {
      tasks.push_back(live(world_.call(rank), *this, rank));
    }
    world_.start(std::move(tasks));
    started_ = true;
    world_.sim().run();
    for (int rank = 0; rank < world_.size() && wrong_.empty(); ++rank) check(rank);
    tidy_up();
    const std::vector<Error> errors = world_.finish();
    for (int rank = 0; rank < world_.size() && wrong_.empty(); ++rank) {
      const Error& error = errors[at(rank)];
      if (error && world_.sim().alive(rank)) {
        wrong_ = fmt::format("rank {}: {}", rank, error.message());
      }
    }
    if (wrong_.empty()) wrong_ = world_.leaks();
    return wrong_;
  }
  int shrinks() const { return shrinks_; }

 private:
  struct Death {
    bool in_shrink = false;  // else in a step of the program
    std::size_t step = 0;
    double after_s = 0;
  };
  struct RankState {
    std::optional<Death> death;
    std::vector<std::unique_ptr<Comm>> comms;
    std::coroutine_handle<> waiter;  // of an agreement
    GatherResult* result = nullptr;
  };

  // One agreement; only its own rank's coroutine may await it.
  class Agreement {
   public:
    Agreement(Story& story, int rank, const GatherKey& key, Need need,
              std::vector<int> participants, std::string blob)
        : story_(story),
          rank_(rank),
          key_(key),
          need_(need),
          participants_(std::move(participants)),
          blob_(std::move(blob)) {}
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> waiter) {
      RankState& state = story_.ranks_[at(rank_)];
      state.waiter = waiter;
      state.result = &result_;
      story_.control_.plane(rank_).gather(
          key_, need_, participants_, blob_,
          [story = &story_, rank = rank_](const GatherResult& r) { story->decided(rank, r); });
      story_.control_.turn_soon(rank_);
    }
    GatherResult await_resume() { return std::move(result_); }

   private:
    Story& story_;
    const int rank_;
    const GatherKey key_;
    const Need need_;
    const std::vector<int> participants_;
    const std::string blob_;
    GatherResult result_;
  };

  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

  SimConfig config();
  ControlWorld::Host host();
  void draw_deaths();
  bool goes_on();
  void maybe_die(int rank, bool in_shrink, std::size_t step);
  void lose(int observer, int lost);
  void decided(int rank, const GatherResult& result);
  Comm& add(int rank, CommKey key, const std::vector<int>& members);
  void let_go(Comm& comm);
  Collected& collective(const Comm& comm, std::size_t step);
  void check(int rank);
  void tidy_up();

  static Task<Error> live(Call& frames, Story& story, int rank);
  static Task<Error> collect(Call& frames, Story& story, Comm& comm, std::size_t step);
  static Task<Error> split(Call& frames, Story& story, Comm& comm, std::size_t step);
  static Task<Error> make(Call& frames, Story& story, const Comm& parent, CommKey key,
                          const std::vector<int>& members, Comm*& made);
  static Task<Error> shrink(Call& frames, Story& story, Comm& comm, std::size_t& step,
                            Comm*& smaller);

  const std::uint64_t seed_;
  bool started_ = false;
  std::uint64_t quiet_at_ns_ = 0;
  Dice dice_;
  World world_;
  ControlWorld control_;
  std::vector<RankState> ranks_;
  std::vector<bool> ops_;  // whether the step is a split
  std::map<std::pair<CommKey, std::size_t>, std::unique_ptr<Collected>> collected_;
  std::map<CommKey, std::vector<int>> members_;  // as the first rank saw them
  int shrinks_ = 0;
  std::string wrong_;
};

SimConfig Story::config() {
  SimConfig config;
  config.ranks = static_cast<int>(2 + dice_.below(8));
  config.seed = seed_;
  config.jitter_s = dice_.below(2) == 0 ? 0 : 1e-5 * dice_.uniform();
  config.slot_bytes = dice_.below(2) == 0 ? 16 + dice_.below(200) : std::size_t{64} << 10;
  config.kernel_s = 1e-6 * dice_.uniform();
  config.late_kernels = dice_.below(2) == 0;
  config.detection_s = dice_.below(2) == 0 ? 1e-5 : 5e-2 * dice_.uniform();
  return config;
}

// The planes' turns keep the simulation alive as long as somebody needs them.
ControlWorld::Host Story::host() {
  const auto now_ns = [this] { return static_cast<std::uint64_t>(world_.sim().now() / 1000) + 1; };
  return {now_ns, [this](std::uint64_t delay_ns, std::function<void()> run) {
            world_.sim().after(static_cast<double>(delay_ns) * 1e-9, std::move(run), !goes_on());
          }};
}

bool Story::goes_on() {
  const auto now_ns = static_cast<std::uint64_t>(world_.sim().now() / 1000);
  bool ended = started_;
  for (int rank = 0; rank < world_.size() && ended; ++rank) {
    ended = !world_.sim().alive(rank) || world_.ended(rank);
  }
  if (ended && quiet_at_ns_ == 0) quiet_at_ns_ = now_ns + quiet_ns;
  return now_ns < (ended ? quiet_at_ns_ : limit_ns);
}

void Story::draw_deaths() {
  for (std::size_t deaths = dice_.below(at(std::min(4, world_.size()))); deaths > 0; --deaths) {
    // Often the root, often several at once.
    const std::size_t victim = dice_.below(2) == 0 ? deaths - 1 : dice_.below(ranks_.size());
    Death death;
    death.in_shrink = dice_.below(3) == 0;
    death.step = dice_.below(ops_.size());
    death.after_s = (dice_.below(2) == 0 ? 1e-4 : 4e-2) * dice_.uniform();
    ranks_[victim].death = death;
  }
}

void Story::maybe_die(int rank, bool in_shrink, std::size_t step) {
  std::optional<Death>& death = ranks_[at(rank)].death;
  if (!death || death->in_shrink != in_shrink || (!in_shrink && death->step != step)) return;
  const double after_s = death->after_s;
  death.reset();
  world_.sim().after(after_s, [this, rank] {
    world_.sim().kill(rank, 0);
    control_.kill(rank);
  });
}

void Story::lose(int observer, int lost) {
  for (const auto& comm : ranks_[at(observer)].comms) {
    const int place = place_of(comm->members, lost);
    if (place >= 0) comm->revoke(Error(Code::remote, fmt::format("rank {} is lost", place), place));
  }
}

void Story::decided(int rank, const GatherResult& result) {
  RankState& state = ranks_[at(rank)];
  if (!state.waiter) return;
  *state.result = result;
  world_.sim().scheduler().make_ready(std::exchange(state.waiter, {}));
}

Comm& Story::add(int rank, CommKey key, const std::vector<int>& members) {
  const auto [known, fresh] = members_.try_emplace(key, members);
  if (!fresh && known->second != members && wrong_.empty()) {
    wrong_ = fmt::format("rank {} is in a communicator of others than its peers think", rank);
  }
  auto& comms = ranks_[at(rank)].comms;
  comms.push_back(std::make_unique<Comm>(world_, control_, key, members, rank));
  control_.plane(rank).add(key, members, *comms.back());
  return *comms.back();
}

void Story::let_go(Comm& comm) {
  control_.plane(comm.own).remove(comm.key, comm.members);
  if (!comm.state.revoked) comm.quiesce(Error(Code::remote, "the communicator was destroyed"));
}

Collected& Story::collective(const Comm& comm, std::size_t step) {
  auto& slot = collected_[{comm.key, step}];
  if (slot) return *slot;
  Dice dice(mix(seed_, comm.key + step));
  DenseCase c;
  do {
    c.algorithm = &algorithms()[dice.below(algorithms().size())];
    // Mostly the one whose result depends on everybody.
  } while (c.algorithm->collective != Collective::allreduce && dice.below(2) == 0);
  c.ranks = comm.context.size;
  if (c.ranks > c.algorithm->ranks_max) {
    c.algorithm = find_algorithm(Collective::allreduce, "ring");
  }
  c.tuning = {std::size_t{32} << dice.below(4), static_cast<int>(1 + dice.below(4))};
  c.count = 1 + dice.below(100);
  c.root = static_cast<int>(dice.below(at(c.ranks)));
  c.seed = seed_ + step;
  slot = std::make_unique<Collected>(c);
  return *slot;
}

Task<Error> Story::collect(Call&, Story& story, Comm& comm, std::size_t step) {
  if (comm.state.revoked) co_return comm.state.revoked;
  if (comm.context.size == 1) co_return Error();  // no algorithm is asked then
  Collected& collected = story.collective(comm, step);
  const std::uint32_t number = ++comm.calls;
  Call call(comm.context, number, step);
  Task<Error> task = collected.dense.start(call, comm.context.rank);
  Error error = co_await std::move(task);
  if (error) co_return error;
  if (++collected.succeeded == collected.size && story.wrong_.empty()) {
    story.wrong_ = collected.dense.check();
    if (!story.wrong_.empty()) story.wrong_ += " in " + collected.name;
  }
  co_return Error();
}

Task<Error> Story::make(Call&, Story& story, const Comm& parent, CommKey key,
                        const std::vector<int>& members, Comm*& made) {
  const std::vector<int> named = at_their_places(parent.members, members);
  for (std::uint32_t round = 0; round < 2; ++round) {
    Agreement all(story, parent.own, {key, round}, Need::all, named, "here");
    const GatherResult result = co_await all;
    if (result.error) co_return result.error;
  }
  made = &story.add(parent.own, key, members);
  co_return Error();
}

Task<Error> Story::split(Call& frames, Story& story, Comm& comm, std::size_t step) {
  if (comm.state.revoked) co_return comm.state.revoked;
  const int color = static_cast<int>(random_bits(story.seed_, at(comm.own), step) % 2);
  const std::uint32_t round = split_base + comm.splits++;
  Agreement all(story, comm.own, {comm.key, round}, Need::all, comm.members,
                Packer().value(color).value(0).take());
  const GatherResult result = co_await all;
  if (result.error) co_return result.error;
  const std::vector<int> members = members_of_color(result, comm.members, color);
  const CommKey key = mix(mix(mix(comm.key, split_mark), round), static_cast<std::uint64_t>(color));
  Comm* child = nullptr;
  Task<Error> making = make(frames, story, comm, key, members, child);
  Error error = co_await std::move(making);
  if (error) co_return error;
  Task<Error> using_it = collect(frames, story, *child, step);
  error = co_await std::move(using_it);
  if (story.world_.sim().alive(comm.own)) story.let_go(*child);
  co_return error;
}

Task<Error> Story::shrink(Call& frames, Story& story, Comm& comm, std::size_t& step,
                          Comm*& smaller) {
  const auto completed = static_cast<std::uint32_t>(step);
  for (int attempt = 0; attempt < comm.context.size; ++attempt) {
    Agreement on_survivors(story, comm.own, {comm.key, shrink_base + comm.shrinks++}, Need::live,
                           comm.members, Packer().value(completed).take());
    const GatherResult said = co_await on_survivors;
    if (said.error) co_return said.error;
    const Survivors survivors = survivors_of(said, comm.members, completed);
    const CommKey key = mix(mix(comm.key, shrink_mark), comm.shrinks);
    smaller = nullptr;
    Task<Error> making = make(frames, story, comm, key, survivors.members, smaller);
    Error error = co_await std::move(making);
    if (!story.world_.sim().alive(comm.own)) co_return error;
    Agreement on_outcome(story, comm.own, {comm.key, shrink_base + comm.shrinks++}, Need::live,
                         at_their_places(comm.members, survivors.members), smaller ? "built" : "");
    const GatherResult built = co_await on_outcome;
    if (built.error) co_return built.error;
    const Outcome outcome = outcome_of(built, survivors.members);
    if (outcome == Outcome::built) {
      step = survivors.completed;
      ++story.shrinks_;
      co_return Error();
    }
    if (smaller) story.let_go(*smaller);
    if (outcome == Outcome::failed) co_return error ? error : Error(Code::remote, "not built");
  }
  co_return Error(Code::internal, "ranks went on dying");
}

Task<Error> Story::live(Call& frames, Story& story, int rank) {
  std::vector<int> all(at(story.world_.size()));
  std::iota(all.begin(), all.end(), 0);
  Comm* comm = &story.add(rank, job_key, all);
  bool fresh = false;  // made by a shrink: an allreduce shows that it works
  for (std::size_t step = 0; step < story.ops_.size();) {
    story.maybe_die(rank, false, step);
    Task<Error> doing = fresh              ? collect(frames, story, *comm, 1000)
                        : story.ops_[step] ? split(frames, story, *comm, step)
                                           : collect(frames, story, *comm, step);
    Error error = co_await std::move(doing);
    if (!story.world_.sim().alive(rank)) co_return error;
    if (!error) {
      step += fresh ? 0 : 1;
      fresh = false;
      continue;
    }
    if (error.code() != Code::remote) co_return error;
    story.maybe_die(rank, true, step);
    Comm* smaller = nullptr;
    Task<Error> shrinking = shrink(frames, story, *comm, step, smaller);
    error = co_await std::move(shrinking);
    if (error || !story.world_.sim().alive(rank)) co_return error;
    story.let_go(*comm);
    comm = smaller;
    fresh = true;
  }
  story.let_go(*comm);
  co_return Error();
}

void Story::check(int rank) {
  if (!world_.sim().alive(rank)) return;
  if (!world_.ended(rank)) {
    wrong_ = fmt::format(
        "rank {} does not end: {}", rank,
        ranks_[at(rank)].waiter ? "it waits for an agreement" : world_.sim().deadlock_report());
    return;
  }
  std::vector<int> dead;
  for (int other = 0; other < world_.size(); ++other) {
    if (!world_.sim().alive(other)) dead.push_back(other);
  }
  const std::vector<int> known = control_.plane(rank).dead();
  if (known != dead) {
    wrong_ = fmt::format("rank {} takes {} for dead, it is {}", rank, fmt::join(known, " "),
                         fmt::join(dead, " "));
  }
}

// Whoever has not ended gets errors, the dead as well, so that no frame is left.
void Story::tidy_up() {
  const Error over(Code::internal, "the simulation is over");
  for (int rank = 0; rank < world_.size(); ++rank) {
    if (!world_.sim().alive(rank)) world_.sim().bury(rank);
    world_.compute(rank).progress();
    for (const auto& comm : ranks_[at(rank)].comms) {
      if (!comm->state.revoked) comm->quiesce(over);
    }
    GatherResult none;
    none.error = over;
    decided(rank, none);
  }
  world_.sim().run();
  for (int rank = 0; rank < world_.size(); ++rank) {
    // Also of communicators that this rank did not get to.
    for (const auto& [key, members] : members_) world_.mailbox(rank).forget(id_of(key));
  }
}

}  // namespace

TEST_CASE("programs with splits and deaths end, and survivors go on", "[survival]") {
  const char* one = std::getenv("PITH_TEST_SEED");
  const char* many = std::getenv("PITH_TEST_SEEDS");
  const std::uint64_t usual = std::getenv("PITH_TEST_FULL") ? 20'000 : 3'000;
  const std::uint64_t first = one ? std::strtoull(one, nullptr, 10) : 1;
  const std::uint64_t seeds = one ? 1 : many ? std::strtoull(many, nullptr, 10) : usual;
  int shrinks = 0;
  int failed = 0;
  for (std::uint64_t seed = first; seed < first + seeds && failed < 10; ++seed) {
    Story story(seed);
    const std::string wrong = story.run();
    shrinks += story.shrinks();
    if (wrong.empty()) continue;
    ++failed;
    FAIL_CHECK(wrong << "\nagain: PITH_TEST_SEED=" << seed << " build/bin/test_survival");
  }
  if (!one) CHECK(shrinks > 0);
}

}  // namespace pith::test
