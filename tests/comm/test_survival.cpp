// Random programs on ranks that die, in virtual time: collectives of every kind and messages,
// several under way at once and on several communicators at once, splits, splits of splits, aborts,
// pauses, deaths, and a shrink whenever something fails. Every program must end, the survivors
// agree on who died, and every call that all ranks of a communicator finished is right. Some links
// are said to be dead when a communicator is shrunk; no two ends of one are in what comes of it.
// Now and then all but some shrink a communicator that nothing has happened to; those that are
// left out go on with its calls meanwhile, and nobody is told that ranks disagree.
//
// PITH_TEST_SEEDS=n runs n seeds; PITH_TEST_SEED=s runs that one, as a failure prints.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <tuple>
#include <vector>

#include "core/mix.hpp"
#include "many_seeds.hpp"
#include "sim_job.hpp"
#include "tests/catch.hpp"
#include "tests/collectives/random_calls.hpp"

namespace pith::test {

namespace {

constexpr CommKey job_key = 1;
// So long that others tell what they wait in, and all are asked what they are in.
constexpr double late_s = 0.8;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t usual_seeds = 1000;
#else
constexpr std::uint64_t usual_seeds = 3000;
#endif

// What the programs of all seeds have come to.
struct Tally {
  int shrinks = 0;
  int healthy = 0;  // of these, of communicators that this rank did not know to be revoked
  int exclusions = 0;
  int left_out = 0;  // because of a dead link
  int splits = 0;
  int grandchildren = 0;
  int calls = 0;  // that all ranks have ended well
};

class Story {
 public:
  explicit Story(std::uint64_t seed, Tally& tally)
      : seed_(seed),
        dice_(seed),
        job_(config(), random_bits(seed, 1, 0) % 3 == 0 ? 32 : 2),
        ranks_(at(job_.size())),
        tally_(tally) {
    for (std::size_t i = 3 + dice_.below(5); i > 0; --i) splits_.push_back(dice_.one_in(3));
    for (int rank = 0; rank < job_.size(); ++rank) {
      job_.world().mailbox(rank).backlog_limit = dice_.one_in(2) ? 1 + dice_.below(2000) : 1 << 20;
    }
    draw_troubles();
  }

  // Empty, or what went wrong.
  std::string run() {
    return job_.run([this](Call& frames, int rank) { return live(frames, *this, rank); });
  }

 private:
  struct Trouble {
    bool is_abort = false;   // else a death
    bool in_shrink = false;  // else in a step of the program
    std::size_t step = 0;
    double after_s = 0;
  };
  struct RankState {
    std::optional<Trouble> trouble;
    std::vector<SimComm*> children;  // children by splits that are still in use
  };
  // Calls of one communicator that are under way at once. Phase 1: while it is being split.
  using Batch = std::vector<std::unique_ptr<Scheduled>>;
  using BatchKey = std::tuple<CommKey, std::size_t, int>;

  static constexpr std::size_t fresh_step = 1000;  // shows that what a shrink has made works

  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
  // The same on all ranks.
  std::uint64_t draw(CommKey key, std::size_t step, std::uint64_t what) const {
    return random_bits(mix(seed_, key), what, step);
  }

  SimConfig config();
  void draw_troubles();
  void maybe_fail(int rank, bool in_shrink, std::size_t step);
  Batch& batch(const SimComm& comm, std::size_t step, int phase);
  void look_at(Batch& batch, int ranks);
  int color_of(const SimComm& parent, int member, std::size_t step) const;
  int key_of(const SimComm& parent, int member, std::size_t step) const;
  void check_split(const SimComm& parent, const SimComm* child, std::size_t step);
  std::vector<int> excluded_of(const SimComm& comm) const;
  bool is_excluded(const SimComm& comm) const;
  bool shrinks_anyway(const SimComm& comm, std::size_t step) const;
  bool is_dead_link(CommKey key, int one, int other) const;
  std::vector<int> cut_off_from(const SimComm& comm) const;
  void check_links(CommKey parent, const std::vector<int>& members);
  void drop_children(int rank, std::size_t step);
  void abandon(int rank, SimComm& comm);

  static Task<Error> live(Call& frames, Story& story, int rank);
  static Task<Error> work(Call& frames, Story& story, SimComm& comm, std::size_t step);
  static Task<Error> shrink(Call& frames, Story& story, SimComm*& comm, std::size_t& step);
  static Task<Error> call_one(Call& frames, SimComm& comm, Scheduled& one, std::uint32_t number);
  static Task<Error> call(Call& frames, Story& story, SimComm& comm, std::size_t step, int phase);
  static Task<Error> call_all(Call& frames, Story& story, SimComm& comm, std::size_t step);
  static Task<Error> split(Call& frames, Story& story, SimComm& comm, std::size_t step);

  const std::uint64_t seed_;
  Dice dice_;
  SimJob job_;
  std::vector<RankState> ranks_;
  std::vector<bool> splits_;  // whether the step is a split
  std::map<BatchKey, Batch> batches_;
  std::map<CommKey, MessageCounts> counts_;
  Tally& tally_;
};

SimConfig Story::config() {
  SimConfig config;
  config.ranks = static_cast<int>(2 + dice_.below(8));
  config.seed = seed_;
  config.jitter_s = dice_.one_in(2) ? 0 : 1e-5 * dice_.uniform();
  config.wire_bytes = dice_.one_in(2) ? 1 + dice_.below(500) : std::size_t{1} << 20;
  config.slot_bytes = dice_.one_in(2) ? 16 + dice_.below(200) : std::size_t{64} << 10;
  config.kernel_s = 1e-6 * dice_.uniform();
  config.gamma_s_per_byte = 1e-9 * dice_.uniform();
  config.late_kernels = dice_.one_in(2);
  config.detection_s = dice_.one_in(2) ? 1e-5 : 5e-2 * dice_.uniform();
  return config;
}

void Story::draw_troubles() {
  for (std::size_t n = dice_.below(at(std::min(4, job_.size()))); n > 0; --n) {
    // Often the root, often several at once.
    const std::size_t victim = dice_.one_in(2) ? n - 1 : dice_.below(ranks_.size());
    Trouble trouble;
    trouble.is_abort = dice_.one_in(5);
    trouble.in_shrink = dice_.one_in(3);
    trouble.step = dice_.below(splits_.size());
    trouble.after_s = (dice_.one_in(2) ? 1e-4 : 4e-2) * dice_.uniform();
    ranks_[victim].trouble = trouble;
  }
}

void Story::maybe_fail(int rank, bool in_shrink, std::size_t step) {
  std::optional<Trouble>& trouble = ranks_[at(rank)].trouble;
  if (!trouble || trouble->in_shrink != in_shrink || (!in_shrink && trouble->step != step)) return;
  job_.world().sim().after(trouble->after_s, [this, rank, is_abort = trouble->is_abort] {
    if (!is_abort) return job_.kill(rank);
    SimComm* comm = job_.newest(rank);
    if (comm && job_.alive(rank)) comm->revoke(Error(Code::remote, "an abort"));
  });
  trouble.reset();
}

// --- calls ------------------------------------------------------------------------------------

Story::Batch& Story::batch(const SimComm& comm, std::size_t step, int phase) {
  const auto [found, fresh] = batches_.try_emplace({comm.key, step, phase});
  if (!fresh) return found->second;
  Dice dice(draw(comm.key, step, static_cast<std::uint64_t>(phase)));
  for (std::size_t n = 1 + dice.below(3); n > 0; --n) {
    found->second.push_back(random_call(dice, comm.size(), counts_[comm.key]));
  }
  return found->second;
}

// Whoever is the last one of a call to end it well looks at its result.
void Story::look_at(Batch& batch, int ranks) {
  for (const auto& one : batch) {
    if (one->succeeded != ranks) continue;
    ++one->succeeded;  // once
    ++tally_.calls;
    const std::string wrong = one->check();
    if (!wrong.empty()) job_.complain(wrong + " in " + one->name);
  }
}

Task<Error> Story::call(Call& frames, Story& story, SimComm& comm, std::size_t step, int phase) {
  if (Error refused = comm.refuses_calls()) co_return refused;
  if (comm.size() == 1) co_return Error();  // no algorithm is asked then
  Batch& batch = story.batch(comm, step, phase);
  std::vector<Task<Error>> strands;
  for (const auto& one : batch) {
    const std::uint32_t number = one->dense ? comm.begin_call(one->name) : comm.calls();
    strands.push_back(call_one(frames, comm, *one, number));
  }
  const Error error = co_await when_all(strands);
  story.look_at(batch, comm.size());
  co_return error;
}

Task<Error> Story::call_one(Call& frames, SimComm& comm, Scheduled& one, std::uint32_t number) {
  Task<Error> calling = make_call(frames, comm.context, one, number);
  Error error = co_await std::move(calling);
  if (one.dense) comm.end_call(number);
  co_return error;
}

// On the communicator and all that come of it by splits, at once.
Task<Error> Story::call_all(Call& frames, Story& story, SimComm& comm, std::size_t step) {
  std::vector<Task<Error>> strands;
  for (SimComm* child : story.ranks_[at(comm.own)].children) {
    strands.push_back(call(frames, story, *child, step, 0));
  }
  strands.push_back(call(frames, story, comm, step, 0));
  const Error error = co_await when_all(strands);
  co_return error;
}

// --- splits -----------------------------------------------------------------------------------

int Story::color_of(const SimComm& parent, int member, std::size_t step) const {
  const std::uint64_t bits = draw(parent.key, step, 100 + static_cast<std::uint64_t>(member));
  return bits % 8 == 0 ? Split::no_color : static_cast<int>(bits / 8 % 3);
}

int Story::key_of(const SimComm& parent, int member, std::size_t step) const {
  const std::uint64_t bits = draw(parent.key, step, 200 + static_cast<std::uint64_t>(member));
  return static_cast<int>(bits % 5) - 2;
}

void Story::check_split(const SimComm& parent, const SimComm* child, std::size_t step) {
  const int color = color_of(parent, parent.own, step);
  std::vector<std::tuple<int, int, int>> expected;  // key, place, rank of the job
  for (const int member : parent.members) {
    if (color == Split::no_color || color_of(parent, member, step) != color) continue;
    expected.emplace_back(key_of(parent, member, step), place_of(parent.members, member), member);
  }
  std::sort(expected.begin(), expected.end());
  std::vector<int> members;
  for (const auto& [key, place, member] : expected) members.push_back(member);
  if ((child ? child->members : std::vector<int>()) == members) return;
  job_.complain(fmt::format(
      "rank {} is split from {} among {}, not {}", parent.own, fmt::join(parent.members, " "),
      fmt::join(child ? child->members : std::vector<int>(), " "), fmt::join(members, " ")));
}

// Mostly with calls of the parent under way; the child of one in three is split as well. Then all
// of them are used at once.
Task<Error> Story::split(Call& frames, Story& story, SimComm& comm, std::size_t step) {
  std::vector<SimComm*>& children = story.ranks_[at(comm.own)].children;
  SimComm* parent = &comm;
  for (int generation = 0; generation < 2; ++generation) {
    SimComm* child = nullptr;
    std::vector<Task<Error>> strands;
    strands.push_back(SimJob::split(frames, story.job_, *parent,
                                    story.color_of(*parent, comm.own, step),
                                    story.key_of(*parent, comm.own, step), child));
    if (story.draw(parent->key, step, 1) % 3 != 0) {
      strands.push_back(call(frames, story, *parent, step, 1));
    }
    const Error error = co_await when_all(strands);
    if (!story.job_.alive(comm.own)) co_return error;
    if (child) children.push_back(child);
    if (error) co_return error;
    ++(generation == 0 ? story.tally_.splits : story.tally_.grandchildren);
    story.check_split(*parent, child, step);
    if (!child || story.draw(child->key, step, 2) % 3 != 0) break;
    parent = child;
  }
  Task<Error> using_them = call_all(frames, story, comm, step);
  Error error = co_await std::move(using_them);
  co_return error;
}

// Half of those that there are, the same on all of their ranks.
void Story::drop_children(int rank, std::size_t step) {
  std::erase_if(ranks_[at(rank)].children, [&](SimComm* child) {
    if (draw(child->key, step, 3) % 2 == 0) return false;
    job_.let_go(*child);
    return true;
  });
}

// --- a rank's life ----------------------------------------------------------------------------

// Others of its ranks may not know yet that anything has failed.
void Story::abandon(int rank, SimComm& comm) {
  const Error error(Code::remote, fmt::format("rank {} goes on without it", comm.context.rank),
                    comm.context.rank);
  for (SimComm* child : ranks_[at(rank)].children) {
    child->revoke(error);
    job_.let_go(*child);
  }
  ranks_[at(rank)].children.clear();
  comm.revoke(error);
}

// One in four shrinks leaves out somebody that lives.
std::vector<int> Story::excluded_of(const SimComm& comm) const {
  const std::uint64_t bits = draw(comm.key, 0, 4);
  if (comm.size() < 3 || bits % 4 != 0) return {};
  return {static_cast<int>(bits / 4 % at(comm.size()))};
}

bool Story::is_excluded(const SimComm& comm) const {
  return contains(excluded_of(comm), comm.context.rank);
}

// Though nobody has failed. Who is left out does not know of it.
bool Story::shrinks_anyway(const SimComm& comm, std::size_t step) const {
  return draw(comm.key, step, 7) % 6 == 0 && !is_excluded(comm);
}

bool Story::is_dead_link(CommKey key, int one, int other) const {
  const auto pair = static_cast<std::uint64_t>(std::min(one, other)) * 1000 +
                    static_cast<std::uint64_t>(std::max(one, other));
  return draw(key, 0, 5) % 4 == 0 && draw(key, 6, pair) % 4 == 0;
}

// Some links are known at one of their ends only.
std::vector<int> Story::cut_off_from(const SimComm& comm) const {
  std::vector<int> cut_off;
  for (const int member : comm.members) {
    if (member == comm.own || !is_dead_link(comm.key, comm.own, member)) continue;
    if (comm.own > member || (comm.own + member) % 2 == 0) cut_off.push_back(member);
  }
  return cut_off;
}

void Story::check_links(CommKey parent, const std::vector<int>& members) {
  for (const int one : members) {
    for (const int other : members) {
      if (one >= other || !is_dead_link(parent, one, other)) continue;
      job_.complain(fmt::format("ranks {} and {} cannot reach each other", one, other));
    }
  }
}

Task<Error> Story::work(Call& frames, Story& story, SimComm& comm, std::size_t step) {
  const std::uint64_t bits = story.draw(comm.key, step, 300 + static_cast<std::uint64_t>(comm.own));
  if (bits % 4 == 0) {
    const double most_s = bits & 4 ? 1e-4 : bits & 24 ? 2e-2 : late_s;
    Task<Error> pause = SimJob::pause(frames, story.job_, most_s * double(bits % 97) / 97);
    static_cast<void>(co_await std::move(pause));
  }
  if (!story.job_.alive(comm.own)) co_return Error(Code::remote, "this rank is dead");
  const bool splits = step != fresh_step && story.splits_[step];
  Task<Error> doing = step == fresh_step ? call(frames, story, comm, step, 0)
                      : splits           ? split(frames, story, comm, step)
                                         : call_all(frames, story, comm, step);
  Error error = co_await std::move(doing);
  co_return error;
}

// In its place comes the smaller one, at the step that all who are in it have not done yet; null:
// this rank is in none.
Task<Error> Story::shrink(Call& frames, Story& story, SimComm*& comm, std::size_t& step) {
  SimJob& job = story.job_;
  SimComm& old = *comm;
  const std::uint64_t bits = story.draw(old.key, step, 400 + static_cast<std::uint64_t>(old.own));
  if (!old.state.revoked && bits % 2 == 0) {
    Task<Error> pause = SimJob::pause(frames, job, late_s * double(bits % 97) / 97);
    static_cast<void>(co_await std::move(pause));
  }
  if (!job.alive(old.own)) co_return Error(Code::remote, "this rank is dead");
  const bool healthy = !old.state.revoked;
  SimJob::Smaller smaller;
  Task<Error> shrinking = SimJob::shrink(frames, job, old, story.excluded_of(old),
                                         story.cut_off_from(old), step, smaller);
  Error error = co_await std::move(shrinking);
  if (!job.alive(old.own)) co_return error;
  // Those that were left out hear of it.
  story.abandon(old.own, old);
  job.let_go(old);
  comm = smaller.comm;
  if (error && old.rounds.why) {
    ++story.tally_.left_out;
    co_return Error();
  }
  if (error) co_return error;
  ++story.tally_.shrinks;
  story.tally_.healthy += healthy ? 1 : 0;
  story.check_links(old.key, comm->members);
  step = smaller.completed;
  co_return error;
}

Task<Error> Story::live(Call& frames, Story& story, int rank) {
  SimJob& job = story.job_;
  std::vector<int> all(at(job.size()));
  std::iota(all.begin(), all.end(), 0);
  SimComm* comm = &job.add(rank, job_key, all);
  bool fresh = false;
  for (std::size_t step = 0; comm && step < story.splits_.size();) {
    story.maybe_fail(rank, false, step);
    Error error;
    if (fresh || !story.shrinks_anyway(*comm, step)) {
      Task<Error> doing = work(frames, story, *comm, fresh ? fresh_step : step);
      error = co_await std::move(doing);
      if (!job.alive(rank)) co_return error;
      if (!error) {
        story.drop_children(rank, step);
        step += fresh ? 0 : 1;
        fresh = false;
        continue;
      }
      if (error.code() != Code::remote) co_return error;
      story.abandon(rank, *comm);
    }
    story.maybe_fail(rank, true, step);
    if (story.is_excluded(*comm)) {
      ++story.tally_.exclusions;
      break;
    }
    Task<Error> shrinking = shrink(frames, story, comm, step);
    error = co_await std::move(shrinking);
    if (error || !job.alive(rank)) co_return error;
    fresh = true;
  }
  for (SimComm* child : story.ranks_[at(rank)].children) job.let_go(*child);
  if (comm) job.let_go(*comm);
  co_return Error();
}

}  // namespace

TEST_CASE("programs with splits and deaths end, and survivors go on", "[survival]") {
  Tally tally;
  const std::uint64_t tried =
      try_seeds({.daily = usual_seeds, .full = 20'000}, "test_survival \"programs with splits*\"",
                [&](std::uint64_t seed) { return Story(seed, tally).run(); });
  if (tried < 1000) return;
  // What the programs are about has happened, often.
  CHECK(tally.shrinks > 300);
  CHECK(tally.healthy > 100);
  CHECK(tally.exclusions > 10);
  CHECK(tally.left_out > 10);
  CHECK(tally.splits > 1000);
  CHECK(tally.grandchildren > 100);
  CHECK(tally.calls > 1000);
}

}  // namespace pith::test
