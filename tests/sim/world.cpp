#include "tests/sim/world.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace pith::test {

World::Rank::Rank(World& owner, int number, int ranks)
    : world(owner),
      rank(number),
      mailbox(owner.sim_.scheduler(), ranks),
      transport(owner.sim_, number, mailbox),
      compute(owner.sim_, number, owner.kernels_) {
  comm.id = 1;
  for (int peer = 0; peer < ranks; ++peer) routes.push_back({&transport, peer});
  context.scheduler = &owner.sim_.scheduler();
  context.arena = &arena;
  context.mailbox = &mailbox;
  context.compute = &compute;
  context.host = &compute;
  context.comm = &comm;
  context.routes = routes;
  context.rank = rank;
  context.size = ranks;
  context.revoke = [](void* self, const Error& error) {
    auto& revoking = *static_cast<Rank*>(self);
    revoking.world.revoke(revoking.rank, error);
  };
  context.revoke_context = this;
}

World::World(SimConfig config) : sim_(std::move(config)) {
  for (int rank = 0; rank < size(); ++rank) {
    ranks_.push_back(std::make_unique<Rank>(*this, rank, size()));
  }
  sim_.on_peer_lost = [this](int observer, int lost) {
    revoke(observer, Error(Code::remote, fmt::format("rank {} is lost", lost), lost));
  };
}

void World::revoke(int rank, const Error& error) {
  Rank& revoked = at(rank);
  if (revoked.comm.revoked) return;
  revoked.comm.revoked = error;
  revoked.mailbox.quiesce(revoked.comm, error);
  revoked.transport.quiesce(revoked.comm, error);
  if (announced_ || !sim_.alive(rank)) return;
  announced_ = true;
  sim_.after(revoke_delay_s, [this, error] {
    for (int other = 0; other < size(); ++other) {
      if (sim_.alive(other)) revoke(other, error);
    }
  });
}

void World::new_calls() {
  ++calls_;
  for (auto& rank : ranks_) {
    rank->task = {};
    rank->call.emplace(rank->context, calls_, digest ? digest(rank->rank) : 1);
  }
}

Task<Error> World::watch(Rank& rank, Task<Error> task) {
  Error error = co_await std::move(task);
  rank.ended = rank.world.sim_.now();
  rank.world.last_end_ = std::max(rank.world.last_end_, rank.ended);
  if (rank.world.on_end) rank.world.on_end(rank.rank);
  co_return error;
}

void World::begin(Rank& rank) {
  if (rank.begun || !sim_.runs(rank.rank)) return;
  rank.begun = true;
  sim_.scheduler().make_ready(rank.task.handle());
}

void World::start(std::vector<Task<Error>> tasks) {
  started_ = last_end_ = sim_.now();
  for (auto& rank : ranks_) {
    rank->task = watch(*rank, std::move(tasks[static_cast<std::size_t>(rank->rank)]));
    rank->begun = false;
    const double delay = start_s ? start_s(rank->rank) : 0.0;
    if (delay > 0) {
      sim_.after(delay, [this, late = rank.get()] { begin(*late); });
    } else {
      begin(*rank);
    }
  }
}

// No frame is destroyed while it is suspended, so what is left is revoked and runs to its end.
void World::tidy_up() {
  const Error over(Code::internal, "the simulation is over");
  for (auto& rank : ranks_) {
    if (rank->task.done()) continue;
    if (!sim_.alive(rank->rank)) sim_.bury(rank->rank);
    rank->compute.progress();
    revoke(rank->rank, over);
    begin(*rank);
  }
  sim_.run();
}

std::vector<Error> World::finish() {
  sim_.run();
  std::vector<Error> errors;
  for (auto& rank : ranks_) {
    if (rank->task.done()) {
      errors.push_back(rank->task.take());
    } else if (!sim_.alive(rank->rank)) {
      errors.emplace_back(Code::remote, fmt::format("rank {} is dead", rank->rank), rank->rank);
    } else {
      errors.emplace_back(
          Code::internal,
          fmt::format("rank {} has not ended:\n{}", rank->rank, sim_.deadlock_report()),
          rank->rank);
    }
  }
  tidy_up();
  return errors;
}

std::string World::leaks() {
  for (auto& rank : ranks_) {
    rank->task = {};
    rank->mailbox.forget(rank->comm.id);
  }
  sim_.run();
  std::string lines;
  auto expect_none = [&lines](int rank, const char* what, std::size_t count) {
    if (count != 0) lines += fmt::format("rank {}: {} {}\n", rank, count, what);
  };
  for (auto& rank : ranks_) {
    expect_none(rank->rank, "coroutine frames", rank->arena.live());
    expect_none(rank->rank, "scratch buffers", rank->compute.scratch_taken());
    expect_none(rank->rank, "waiting receives", rank->mailbox.waiting());
    expect_none(rank->rank, "mailbox buffers", rank->mailbox.buffers_out());
  }
  if (sim_.leased() != 0) lines += fmt::format("{} leased messages\n", sim_.leased());
  return lines;
}

namespace {

constexpr std::byte scribble{0xA5};

std::string run_with_abort(const SimConfig& config, Program& program, const AbortOptions& options,
                           std::uint64_t step, bool& reached) {
  World world(config);
  world.revoke_delay_s = options.revoke_delay_s;
  world.on_end = [&program](int rank) { std::ranges::fill(program.memory(rank), scribble); };
  world.new_calls();
  std::vector<Task<Error>> tasks;
  for (int rank = 0; rank < world.size(); ++rank) {
    tasks.push_back(program.start(world.call(rank), rank));
  }
  world.start(std::move(tasks));
  std::uint64_t done = 0;
  while (done < step && world.sim().step()) ++done;
  reached = done == step;

  const auto ranks = static_cast<std::uint64_t>(world.size());
  const int victim = options.victim >= 0 ? options.victim : static_cast<int>(step % ranks);
  world.revoke(victim, Error(Code::remote, fmt::format("rank {} has aborted", victim), victim));
  std::string failure;
  for (const Error& error : world.finish()) {
    if (error.code() == Code::internal) failure += error.message();
  }
  for (int rank = 0; rank < world.size(); ++rank) {
    if (!world.ended(rank)) return failure + fmt::format("rank {} never ends\n", rank);
  }
  failure += world.leaks();
  for (int rank = 0; rank < world.size(); ++rank) {
    const auto is_ours = [](std::byte b) { return b == scribble; };
    if (!std::ranges::all_of(program.memory(rank), is_ours)) {
      failure += fmt::format("rank {}: a buffer was written after the call\n", rank);
    }
  }
  return failure;
}

}  // namespace

AbortReport inject_aborts(const SimConfig& config,
                          const std::function<std::unique_ptr<Program>()>& make,
                          AbortOptions options) {
  AbortReport report;
  bool reached = true;
  for (std::uint64_t step = options.first; reached; step += options.stride) {
    const std::unique_ptr<Program> program = make();
    const std::string failure = run_with_abort(config, *program, options, step, reached);
    if (reached) ++report.points;
    if (!failure.empty()) {
      report.failure = fmt::format("abort at step {} (seed {}):\n{}", step, config.seed, failure);
      return report;
    }
  }
  return report;
}

}  // namespace pith::test
