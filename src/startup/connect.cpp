#include "startup/connect.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <latch>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>

#include "comm/process_end.hpp"
#include "core/clock.hpp"
#include "core/log.hpp"
#include "core/per_process.hpp"
#include "core/run_together.hpp"
#include "settings/transport_rule.hpp"
#include "startup/given_links.hpp"
#include "startup/listen_host.hpp"
#include "startup/rendezvous.hpp"
#include "startup/start_error.hpp"
#include "startup/topology.hpp"
#include "startup/transport_setup.hpp"
#include "streams/stream_memory.hpp"
#include "streams/streams.hpp"
#include "transport/local/local.hpp"

namespace pith {

namespace {

// Key of the communicator that spans the whole job; children have other keys.
constexpr CommKey job_key = 1;

// Outside the range that a ControlGatherer numbers its rounds from.
constexpr std::uint32_t connected_round = 0x20000000;

std::vector<int> all_ranks(int ranks) {
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// Blocks until every rank is in the control tree.
void wait_for_tree(const std::vector<std::shared_ptr<ControlNode>>& nodes) {
  const std::vector<int> ranks = all_ranks(static_cast<int>(nodes.size()));
  std::latch joined(static_cast<std::ptrdiff_t>(nodes.size()));
  for (const auto& node : nodes) {
    node->gather({job_key, connected_round}, ControlPlane::Need::all, ranks, "",
                 [&joined](const GatherResult&) { joined.count_down(); });
  }
  joined.wait();
}

double round_trip_of(const std::vector<std::unique_ptr<PeerTransport>>& transports) {
  double longest = 0;
  for (const auto& transport : transports) longest = std::max(longest, transport->round_trip_s());
  return longest;
}

// The same on all ranks, as all have the same blobs.
double longest_of(const std::map<int, std::string>& round_trips) {
  double longest = 0;
  for (const auto& [rank, blob] : round_trips) {
    longest = std::max(longest, Unpacker(blob).value<double>());
  }
  return longest;
}

// What follows the round trip.
std::map<int, std::string> links_told(const std::map<int, std::string>& blobs) {
  std::map<int, std::string> told;
  for (const auto& [rank, blob] : blobs) {
    Unpacker unpacker(blob);
    unpacker.value<double>();
    told[rank] = unpacker.text();
  }
  return told;
}

// What a rank contributes, in this order; the first rank appends the hub's address.
std::string info_of_thread(const Settings& settings, std::size_t ranks) {
  return Packer()
      .text(orders_by_locality(settings, ranks) ? own_locality().pack() : "")
      .text(UsableCores::of_this_thread().pack())
      .value(!devices_in_use().empty())
      .take();
}

struct Threads {
  bool oversubscribed;
  bool devices;
};
Threads threads_of(const std::vector<std::string>& all) {
  std::vector<UsableCores> cores;
  bool devices = true;
  for (const std::string& one : all) {
    Unpacker unpacker(one);
    unpacker.text();
    cores.push_back(UsableCores::unpack(unpacker.text()));
    devices = unpacker.value<bool>() && devices;
  }
  return {are_oversubscribed(cores), devices};
}

void tell_addresses(const StartLog& log, const UniqueId& id, const std::string& own,
                    const Settings& settings) {
  const Expected<HostChoice> choice = explain_root_host(settings);
  log.tell(fmt::format(
      "met the others at {}, listens at {} ({}); interfaces are {}", id.address, own,
      rank_host_rule(settings),
      choice ? fmt::format("{}", fmt::join(choice->considered, ", ")) : choice.error().message()));
}

RankOrder order_of_threads(const std::vector<std::string>& all, const Settings& settings) {
  if (!orders_by_locality(settings, all.size())) return {};
  std::vector<Locality> ranks;
  ranks.reserve(all.size());
  for (const std::string& one : all) ranks.push_back(Locality::unpack(Unpacker(one).text()));
  RankGroups one(ranks.size());
  for (std::size_t r = 1; r < ranks.size(); ++r) one.join(0, r);
  return order_by_locality(ranks, one);
}

// A process can make several communicators from ids, whose files would have equal names. Those of
// the first id keep the plain prefix; for others the root's address is added.
class RecordNames {
 public:
  std::string prefix_of(const std::string& prefix, const std::string& met_at) {
    const std::lock_guard lock(mutex_);
    if (!first_) first_ = met_at;
    if (prefix.empty() || met_at == *first_) return prefix;
    return fmt::format("{}.at-{}", prefix, met_at);
  }
  // The prefix for the first that asks, with a number for others. `rank`: who asks.
  std::string take(const std::string& prefix, int rank) {
    const std::lock_guard lock(mutex_);
    const int nth = ++taken_[{prefix, rank}];
    return nth == 1 ? prefix : fmt::format("{}.{}", prefix, nth);
  }

 private:
  std::mutex mutex_;
  std::optional<std::string> first_;
  std::map<std::pair<std::string, int>, int> taken_;
};

// What the job's communicator was given; children begin with what their parent has.
Expected<GivenLinks> links_given_to(const Communicator& made, const Settings& settings) {
  const CommIdentity& who = made.identity();
  if (who.key != job_key || who.rank != 0) return GivenLinks();
  return GivenLinks::read(settings);
}

void begin_with(Communicator& made, const GivenLinks& given) {
  Model& model = made.links().model();
  model.set_known(made.identity().key == job_key ? given.known() : model.known());
}

// Files of children carry the key, as their ranks are numbered from 0 again.
void begin_records(Communicator& made, const GivenLinks& given) {
  const CommKey key = made.identity().key;
  const std::string child = key == job_key ? "" : fmt::format(".comm-{:016x}", key);
  const auto [trace, choices, kept] = made.record_paths();
  RecordNames& names = PerProcess<RecordNames>::get();
  if (!trace.empty()) {
    made.links().begin_trace(
        fmt::format("{}.rank{}.jsonl", names.take(trace + child, made.rank()), made.rank()));
  }
  if (made.rank() != 0) return;
  constexpr int of_choices = -1;
  constexpr int of_links = -2;
  ChoiceLearning& learning = made.calls().learning();
  if (!choices.empty()) {
    learning.keep_log(names.take(choices + child, of_choices), made.links().hosts().count());
  }
  if (key != job_key) return;
  if (!kept.empty() && !given.is_pinned())
    learning.keep_links(names.take(kept, of_links), given.table());
  Observers* const observers = made.identity().control->observers();
  if (!observers) return;
  learning.show_to(observers, made.links().hosts().count());
  log(LogLevel::info,
      fmt::format("what it chooses is shown by pith-explain --attach {}", observers->address()));
}

// All ranks are threads of this process and share `hub`.
void join(Communicator& made, std::shared_ptr<LocalHub> hub, RankOrder order,
          const GivenLinks& given = {}) {
  Links& links = made.links();
  auto local = std::make_unique<LocalTransport>(
      links.engine().scheduler(), links.engine().mailbox(), made.rank(), std::move(hub));
  for (int peer = 0; peer < made.size(); ++peer) {
    if (peer != made.rank()) links.set_route(peer, {local.get(), peer});
  }
  links.set_order(std::move(order));
  links.set_hosts(std::vector<std::size_t>(static_cast<std::size_t>(made.size())));
  links.transports().add(std::move(local));
  links.set_views(true, true);
  links.set_one_process();
  begin_with(made, given);
  begin_records(made, given);
  made.join_control_plane(false);
}

using All = Expected<std::vector<std::unique_ptr<Communicator>>>;

All make_threads(int ranks, const Settings& settings) {
  const Expected<std::shared_ptr<LocalHub>> hub = LocalHub::create(ranks);
  if (!hub) return hub.error();
  StartLog log("communicator", 0, ranks);
  log.begins(settings);
  Expected<GivenLinks> given = GivenLinks::read(settings);
  if (!given) return given.error();
  std::map<int, std::string> told{{0, given->pack(settings)}};
  for (int rank = 1; rank < ranks; ++rank) told[rank] = GivenLinks().pack(settings);
  given->hear(told);
  const auto nodes = ControlNode::among_threads(ranks, settings);
  // The threads that will drive the ranks are unknown here; they inherit this thread's CPU mask.
  const bool oversubscribed = are_oversubscribed(
      std::vector<UsableCores>(static_cast<std::size_t>(ranks), UsableCores::of_this_thread()));
  std::vector<std::unique_ptr<Communicator>> made;
  for (int r = 0; r < ranks; ++r) {
    made.push_back(std::make_unique<Communicator>(
        settings, CommIdentity{nodes[static_cast<std::size_t>(r)], job_key, all_ranks(ranks), r}));
    if (Error error = made.back()->links().model().force(settings.algo)) return error;
    made.back()->links().set_oversubscribed(oversubscribed, oversubscribed);
    made.back()->links().model().set_devices(!devices_in_use().empty());
    join(*made.back(), *hub, {}, *given);
  }
  wait_for_tree(nodes);
  log.ends("threads of one process");
  return made;
}

// Transports between processes also serve ranks of one process, each started by its own thread.
All make_by_rendezvous(int ranks, const Settings& settings) {
  const Expected<UniqueId> id = Rendezvous::open(settings);
  if (!id) return id.error();
  std::vector<std::unique_ptr<Communicator>> made(static_cast<std::size_t>(ranks));
  std::vector<std::function<Error()>> jobs;
  for (std::size_t r = 0; r < made.size(); ++r) {
    jobs.emplace_back([&settings, &id, &place = made[r], r, ranks] {
      Expected<std::unique_ptr<Communicator>> one =
          make_communicator(settings, *id, static_cast<int>(r), ranks, nullptr);
      if (one) place = std::move(*one);
      return one.error();
    });
  }
  if (Error error = first_failure(run_together(jobs))) return error;
  return made;
}

}  // namespace

Expected<std::unique_ptr<Communicator>> make_communicator(
    const Settings& settings, const UniqueId& id, int rank, int ranks,
    const std::shared_ptr<const Cancellation>& cancellation, TransportTable table,
    std::function<Error()> obstacle) {
  set_log_level(settings.log);
  StartLog log("communicator", rank, ranks);
  log.begins(settings);
  const StartTimes times(settings.wait_for_ranks_s(), settings.init_timeout);
  Expected<Bootstrap> bootstrap =
      Bootstrap::join(id, rank, ranks, times, cancellation, std::move(obstacle));
  if (!bootstrap) {
    Rendezvous::cannot_join(id, as_of_rank(rank, bootstrap.error()));
    return bootstrap.error();
  }
  log.phase("bootstrap root");
  Expected<std::shared_ptr<ControlNode>> control = std::shared_ptr<ControlNode>();
  const Error uncontrolled = without_throwing([&] {
    const Expected<std::string> own_end = bootstrap->host();
    if (!own_end) return own_end.error();
    Expected<std::string> host = rank_host(settings, *own_end);
    if (!host) return host.error();
    control = ControlNode::over_tcp(*bootstrap, std::move(*host), rank, ranks, id.secret, settings);
    return control.error();
  });
  if (uncontrolled) {
    const Error told = as_of_rank(rank, uncontrolled);
    bootstrap->give_up(told);
    return told;
  }
  bootstrap->forget_obstacle();
  log.phase("control plane");
  if (logs(LogLevel::debug)) tell_addresses(log, id, (*control)->host(), settings);
  auto made = std::make_unique<Communicator>(
      settings, CommIdentity{*control, job_key, all_ranks(ranks), rank}, table);
  ControlNode& node = **control;
  RecordNames& names = PerProcess<RecordNames>::get();
  made->set_record_paths({names.prefix_of(settings.trace, id.address),
                          names.prefix_of(settings.explain.log, id.address),
                          names.prefix_of(settings.links.kept, id.address)});
  bootstrap->listen_to([&node] { return node.plane().revocation_of(job_key); });
  const Error failed = without_throwing([&] { return connect(*made, *bootstrap, settings, log); });
  if (!failed) return made;
  const Error cancelled = cancellation ? cancellation->error() : Error();
  if (!cancelled) {
    const Error error = as_of_rank(rank, failed);
    bootstrap->give_up(error);
    if (error.code() != Code::remote) node.revoke(job_key, as_seen_elsewhere(error));
    return error;
  }
  node.revoke(job_key, cancelled);  // other ranks may have completed it already
  return cancelled;
}

Error connect(Communicator& made, Gatherer& gatherer, const Settings& settings, StartLog& log) {
  if (Error error = made.links().model().force(settings.algo)) return error;
  Expected<GivenLinks> given = links_given_to(made, settings);
  if (!given) return given.error();
  const CommIdentity& who = made.identity();
  Links& links = made.links();
  TransportSetup setup(links.engine(), who, gatherer, settings, links.transport_table());
  if (Error error = setup.run(log)) return error;
  const RankFacts& facts = setup.facts();
  links.set_views(facts.all_share_memory, facts.any_share_memory);
  links.set_oversubscribed(facts.oversubscribed_here, facts.oversubscribed);
  links.model().set_devices(facts.devices);
  made.streams().set_devices_of_others(facts.devices_of_others);
  for (int rank = 0; rank < made.size(); ++rank) {
    if (rank == made.rank()) continue;
    links.set_route(rank, {setup.route_to(static_cast<std::size_t>(rank)), rank});
  }
  links.set_order(facts.order);
  links.set_hosts(facts.host_names);
  std::vector<std::unique_ptr<PeerTransport>> transports = setup.take_transports();
  // No rank sends before all can receive and the tree of control connections is complete.
  const std::vector<int> named = gatherer.named();
  const GatherResult connected = who.control->gather(
      {who.key, connected_round}, ControlPlane::Need::all, named.empty() ? who.members : named,
      Packer().value(round_trip_of(transports)).text(given->pack(settings)).take(),
      gatherer.cancellation());
  if (connected.error) return connected.error;
  links.model().set_round_trip(longest_of(connected.blobs));
  given->hear(links_told(connected.blobs));
  begin_with(made, *given);
  for (std::unique_ptr<PeerTransport>& transport : transports) {
    transport->on_peer_lost = [&made](int, const Error& error) {
      made.revocation().revoke_for_loss(error);
    };
    links.transports().add(std::move(transport));
  }
  begin_records(made, *given);
  made.join_control_plane(true);
  log.phase("all ready");
  log.ends(setup.summary());
  return {};
}

// The first rank makes the hub and publishes the address of its variable; the others copy from it.
Error connect_threads(Communicator& made, Gatherer& gatherer, const Settings& settings,
                      StartLog& log) {
  if (Error error = made.links().model().force(settings.algo)) return error;
  Expected<std::shared_ptr<LocalHub>> hub = std::shared_ptr<LocalHub>();
  const auto ranks = static_cast<std::size_t>(made.size());
  std::string mine = info_of_thread(settings, ranks);
  if (made.rank() == 0) {
    hub = LocalHub::create(made.size());
    mine += Packer().value(reinterpret_cast<std::uintptr_t>(&hub)).take();
  }
  const Expected<std::vector<std::string>> all = gatherer.gather(mine);
  if (!all) return all.error();
  // Only the first rank can fail here; all read its error at that address.
  Unpacker of_first(all->front());
  of_first.text();
  of_first.text();
  of_first.value<bool>();
  const auto* first = reinterpret_cast<const Expected<std::shared_ptr<LocalHub>>*>(
      of_first.value<std::uintptr_t>());
  Error error = first->error();
  const Threads threads = threads_of(*all);
  made.links().set_oversubscribed(threads.oversubscribed, threads.oversubscribed);
  made.links().model().set_devices(threads.devices);
  if (!error) join(made, **first, order_of_threads(*all, settings));
  // The first rank's variable must stay alive until all have read it.
  if (Error failed = gatherer.gather("joined").error()) return failed;
  if (!error) log.ends("threads of one process");
  return error;
}

Expected<std::vector<std::unique_ptr<Communicator>>> make_communicators(int ranks) {
  const Expected<Settings> settings = settings_from_environment();
  if (!settings) return settings.error();
  set_log_level(settings->log);
  const TransportRule rule(settings->transport);
  const auto& order = rule.order();
  return !order.empty() && order.front() == "local" ? make_threads(ranks, *settings)
                                                    : make_by_rendezvous(ranks, *settings);
}

}  // namespace pith
