#include "world/world.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace pith {

World::Rank::Rank(World& owner, int number, int ranks)
    : world(owner),
      rank(number),
      mailbox(owner.sim_.scheduler(), ranks),
      transport(owner.sim_, number, mailbox),
      compute(owner.sim_, number, kernels) {
  comm.id = 1;
  for (int peer = 0; peer < ranks; ++peer) routes.push_back({&transport, peer});
  context.scheduler = &owner.sim_.scheduler();
  context.arena = &arena;
  context.mailbox = &mailbox;
  context.compute = &compute;
  context.host = &compute;
  context.comm = &comm;
  context.chooser = &owner.model_;
  context.routes = routes;
  context.rank = rank;
  context.size = ranks;
  context.views = static_cast<bool>(owner.sim_.config().reach);
  context.revoke = [](void* self, const Error& error) {
    auto& revoking = *static_cast<Rank*>(self);
    revoking.world.revoke(revoking.rank, error);
  };
  context.revoke_context = this;
}

World::World(SimConfig config) : sim_(std::move(config)), model_(sim_.config().ranks) {
  for (int rank = 0; rank < size(); ++rank) {
    ranks_.push_back(std::make_unique<Rank>(*this, rank, size()));
  }
  sim_.on_peer_lost = [this](int observer, int lost) {
    revoke(observer, Error(Code::remote, fmt::format("rank {} is lost", lost), lost));
  };
  sim_.on_death = [this] { settle(); };
}

World::Recording::Recording(Rank& rank, int ranks, std::size_t most_steps)
    : recorder(
          rank.rank, ranks, [sim = &rank.world.sim_] { return sim->now() / 1000; }, most_steps),
      transport(rank.transport, rank.world.trace_),
      compute(rank.compute, recorder) {
  for (Route& route : rank.routes) route.transport = &transport;
  rank.context.compute = rank.context.host = &compute;
  rank.mailbox.observer = &rank.world.trace_;
  rank.world.trace_.add(rank.comm, recorder);
}

void World::set_order(RankOrder order) {
  order_ = std::move(order);
  for (auto& rank : ranks_) {
    for (int place = 0; place < size(); ++place) {
      rank->routes[static_cast<std::size_t>(place)].peer = order_.rank_at(place);
    }
    rank->context.rank = order_.place_of(rank->rank);
    rank->context.order = &order_;
  }
}

void World::set_hosts(const std::vector<int>& names) {
  const std::vector<int> placed = order_.arrange(std::span<const int>(names));
  hosts_ = Hosts(std::span<const int>(placed));
  for (auto& rank : ranks_) rank->context.hosts = &hosts_;
}

void World::record(std::size_t most_steps) {
  sim_.scheduler().observer = &trace_;
  for (auto& rank : ranks_) rank->recording.emplace(*rank, size(), most_steps);
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
  rank.over = true;
  if (error && rank.comm.exposed) {
    rank.world.unsettled_ = true;
  } else {
    rank.world.come_back(rank);
  }
  rank.world.settle();
  co_return error;
}

void World::come_back(Rank& rank) {
  if (std::exchange(rank.returned, true)) return;
  if (on_end) on_end(rank.rank);
}

// As the communicator does after a failure: peers may still access a rank's memory, so calls return
// only when all living ranks have ended theirs.
void World::settle() {
  if (!unsettled_) return;
  for (const auto& rank : ranks_) {
    if (!rank->over && sim_.alive(rank->rank)) return;
  }
  for (const auto& rank : ranks_) {
    if (rank->over) come_back(*rank);
  }
  unsettled_ = false;
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
    rank->begun = rank->over = rank->returned = false;
    const double delay = start_s ? start_s(rank->rank) : 0.0;
    if (delay > 0) {
      sim_.after(delay, [this, late = rank.get()] { begin(*late); });
    } else {
      begin(*rank);
    }
  }
}

// A frame must not be destroyed while suspended, so unfinished calls are revoked and run to their
// end.
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

void World::renew() {
  for (auto& rank : ranks_) {
    const std::uint32_t id = rank->comm.id + 1;
    rank->comm = {};
    rank->comm.id = id;
  }
  announced_ = false;
  calls_ = 0;
}

std::string World::leaks() {
  for (auto& rank : ranks_) {
    rank->task = {};
    for (std::uint32_t id = 1; id <= rank->comm.id; ++id) rank->mailbox.forget(id);
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

}  // namespace pith
