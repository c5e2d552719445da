// How a communicator comes to be: from a meeting of its ranks, or all at once in one process.
#include <fmt/format.h>

#include <latch>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>

#include "comm/bootstrap.hpp"
#include "comm/communicator.hpp"
#include "comm/listen_host.hpp"
#include "comm/process_end.hpp"
#include "comm/rendezvous.hpp"
#include "comm/start_error.hpp"
#include "comm/start_log.hpp"
#include "comm/stream_memory.hpp"
#include "comm/topology.hpp"
#include "core/clock.hpp"
#include "core/log.hpp"
#include "core/per_process.hpp"
#include "core/run_together.hpp"
#include "core/transport_rule.hpp"
#include "startup/transport_setup.hpp"
#include "transport/local/local.hpp"

namespace pith {

namespace {

// The communicator that spans the whole job; its descendants have other keys.
constexpr CommKey job_key = 1;

// Apart from the rounds of a ControlGatherer.
constexpr std::uint32_t connected_round = 0x20000000;

std::vector<int> all_ranks(int ranks) {
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// Until every rank is in the tree.
void wait_for_tree(const std::vector<std::shared_ptr<ControlSeat>>& seats) {
  const std::vector<int> ranks = all_ranks(static_cast<int>(seats.size()));
  std::latch joined(static_cast<std::ptrdiff_t>(seats.size()));
  for (const auto& seat : seats) {
    seat->gather({job_key, connected_round}, ControlPlane::Need::all, ranks, "",
                 [&joined](const GatherResult&) { joined.count_down(); });
  }
  joined.wait();
}

// What each has given, in this order, before what the first rank adds.
std::string info_of_thread(const Settings& settings, std::size_t ranks) {
  return Packer()
      .text(orders_by_locality(settings, ranks) ? own_locality().pack() : "")
      .text(UsableCores::of_this_thread().pack())
      .value(!devices_in_use().empty())
      .take();
}

struct Threads {
  bool crowded;
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
  return {are_crowded(cores), devices};
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

// Programs make several communicators from ids, whose files would have one name: a process's first
// ones have it, for all others the place where their ranks have met is part of it.
class TracePaths {
 public:
  std::string prefix_of(const std::string& prefix, const std::string& met_at) {
    const std::lock_guard lock(mutex_);
    if (!first_) first_ = met_at;
    return met_at == *first_ ? prefix : fmt::format("{}.at-{}", prefix, met_at);
  }
  std::string take(const std::string& prefix, int rank) {
    const std::lock_guard lock(mutex_);
    const int nth = ++taken_[{prefix, rank}];
    const std::string number = nth == 1 ? "" : fmt::format(".{}", nth);
    return fmt::format("{}{}.rank{}.jsonl", prefix, number, rank);
  }

 private:
  std::mutex mutex_;
  std::optional<std::string> first_;
  std::map<std::pair<std::string, int>, int> taken_;
};

}  // namespace

Error Communicator::read_forced(const std::string& text) {
  const Expected<ForcedAlgorithms> forced = read_algorithm_rule(text, size());
  if (!forced) return forced.error();
  forced_ = *forced;
  context_.choice.allreduce = forced_[index(Collective::allreduce)];
  return {};
}

void Communicator::add_transport(std::unique_ptr<PeerTransport> transport) {
  engine_->add(*transport);
  transports_.push_back(std::move(transport));
}

Expected<std::unique_ptr<Communicator>> Communicator::init_rank(
    const Settings& settings, const UniqueId& id, int rank, int ranks,
    const std::shared_ptr<const Cancellation>& cancellation, TransportTable table) {
  set_log_level(settings.log);
  StartLog log("communicator", rank, ranks);
  log.begins(settings);
  const StartTimes times(settings.wait_for_ranks_s(), settings.init_timeout);
  Expected<Bootstrap> bootstrap = Bootstrap::join(id, rank, ranks, times, cancellation);
  if (!bootstrap) {
    Rendezvous::cannot_join(id, as_of_rank(rank, bootstrap.error()));
    return bootstrap.error();
  }
  log.phase("bootstrap root");
  Expected<std::shared_ptr<ControlSeat>> control = std::shared_ptr<ControlSeat>();
  const Error uncontrolled = without_throwing([&] {
    control = ControlSeat::over_tcp(*bootstrap, rank, ranks, id.secret, settings);
    return control.error();
  });
  if (uncontrolled) {
    const Error told = as_of_rank(rank, uncontrolled);
    bootstrap->give_up(told);
    return told;
  }
  log.phase("control plane");
  if (logs(LogLevel::debug)) tell_addresses(log, id, (*control)->host(), settings);
  std::unique_ptr<Communicator> made(
      new Communicator(settings, std::move(*control), job_key, all_ranks(ranks), rank));
  made->transport_table_ = table;
  if (!settings.trace.empty()) {
    made->trace_prefix_ = PerProcess<TracePaths>::get().prefix_of(settings.trace, id.address);
  }
  bootstrap->listen_to([seat = made->control_] { return seat->plane().revocation_of(job_key); });
  const Error failed = without_throwing([&] { return made->connect(*bootstrap, settings, log); });
  if (!failed) return made;
  if (const Error cancelled = cancellation ? cancellation->error() : Error()) {
    made->control_->revoke(job_key, cancelled);  // the other ranks may have made it already
    return cancelled;
  }
  bootstrap->give_up(as_of_rank(rank, failed));
  return made->give_up_start(failed);
}

// The others wait for our connections.
Error Communicator::give_up_start(const Error& cause) {
  const Error error = as_of_rank(rank(), cause);
  if (error.code() != Code::remote) control_->revoke(key_, as_seen_elsewhere(error));
  return error;
}

// Descendants carry their key in the file's name, for their ranks count from 0 again.
void Communicator::begin_trace() {
  if (trace_prefix_.empty()) return;
  const std::string descendant = key_ == job_key ? "" : fmt::format(".comm-{:016x}", key_);
  trace_ = std::make_unique<CallTrace>(
      PerProcess<TracePaths>::get().take(trace_prefix_ + descendant, rank()), rank(), context_,
      routes_);
}

Error Communicator::connect(Gatherer& gatherer, const Settings& settings, StartLog& log) {
  if (Error error = read_forced(settings.algo)) return error;
  TransportSetup setup(*engine_, rank(), size(), *control_, gatherer, settings, transport_table_);
  if (Error error = setup.run(log)) return error;
  const RankFacts& facts = setup.facts();
  set_views(facts.all_share_memory, facts.any_share_memory);
  engine_->set_oversubscribed(facts.oversubscribed_here);
  set_crowded(facts.oversubscribed);
  set_devices(facts.devices);
  devices_of_others_ = facts.devices_of_others;
  for (std::size_t r = 0; r < routes_.size(); ++r) {
    if (static_cast<int>(r) != rank()) routes_[r] = {setup.route_to(r), static_cast<int>(r)};
  }
  set_order(facts.order);
  set_hosts(facts.host_names);
  // Nobody sends before everybody can receive, and the tree of control connections stands.
  const std::vector<int> named = gatherer.named();
  const GatherResult connected =
      control_->gather({key_, connected_round}, ControlPlane::Need::all,
                       named.empty() ? members_ : named, "", gatherer.cancellation());
  if (connected.error) return connected.error;
  for (std::unique_ptr<PeerTransport>& transport : setup.take_transports()) {
    transport->on_peer_lost = [this](int, const Error& error) { revoke_for_loss(error); };
    add_transport(std::move(transport));
  }
  begin_trace();
  control_->plane().add(key_, members_, *this);
  ProcessEnd::instance().add(*this);
  log.phase("all ready");
  log.ends(setup.summary());
  return {};
}

// All ranks are threads of this process and share `hub`.
void Communicator::join(std::shared_ptr<LocalHub> hub, RankOrder order) {
  auto local = std::make_unique<LocalTransport>(engine_->scheduler(), engine_->mailbox(), rank(),
                                                std::move(hub));
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank()) routes_[static_cast<std::size_t>(peer)] = {local.get(), peer};
  }
  set_order(std::move(order));
  set_hosts(std::vector<std::size_t>(static_cast<std::size_t>(size())));
  add_transport(std::move(local));
  set_views(true, true);
  one_process_ = true;
  begin_trace();
  control_->plane().add(key_, members_, *this);
}

// The first rank makes the hub; the others take it from where it says.
Error Communicator::connect_threads(Gatherer& gatherer, const Settings& settings, StartLog& log) {
  if (Error error = read_forced(settings.algo)) return error;
  Expected<std::shared_ptr<LocalHub>> hub = std::shared_ptr<LocalHub>();
  const auto ranks = static_cast<std::size_t>(size());
  std::string mine = info_of_thread(settings, ranks);
  if (rank() == 0) {
    hub = LocalHub::create(size());
    mine += Packer().value(reinterpret_cast<std::uintptr_t>(&hub)).take();
  }
  const Expected<std::vector<std::string>> all = gatherer.gather(mine);
  if (!all) return all.error();
  // An error in making it is the first rank's alone, but everybody sees it there.
  Unpacker of_first(all->front());
  of_first.text();
  of_first.text();
  of_first.value<bool>();
  const auto* first = reinterpret_cast<const Expected<std::shared_ptr<LocalHub>>*>(
      of_first.value<std::uintptr_t>());
  Error error = first->error();
  const Threads threads = threads_of(*all);
  engine_->set_oversubscribed(threads.crowded);
  set_crowded(threads.crowded);
  set_devices(threads.devices);
  if (!error) join(**first, order_of_threads(*all, settings));
  // Until then the first rank's variable is in use.
  if (Error failed = gatherer.gather("joined").error()) return failed;
  if (!error) log.ends("threads of one process");
  return error;
}

Expected<std::vector<std::unique_ptr<Communicator>>> Communicator::init_all(int ranks) {
  const Expected<Settings> settings = settings_from_environment();
  if (!settings) return settings.error();
  set_log_level(settings->log);
  const TransportRule rule(settings->transport);
  const auto& order = rule.order();
  return !order.empty() && order.front() == "local" ? init_threads(ranks, *settings)
                                                    : init_by_meeting(ranks, *settings);
}

Communicator::All Communicator::init_threads(int ranks, const Settings& settings) {
  const Expected<std::shared_ptr<LocalHub>> hub = LocalHub::create(ranks);
  if (!hub) return hub.error();
  StartLog log("communicator", 0, ranks);
  log.begins(settings);
  const auto seats = ControlSeat::among_threads(ranks, settings);
  // Where their threads will run is not known yet; this one's CPUs will be theirs.
  const bool crowded = are_crowded(
      std::vector<UsableCores>(static_cast<std::size_t>(ranks), UsableCores::of_this_thread()));
  std::vector<std::unique_ptr<Communicator>> made;
  for (int r = 0; r < ranks; ++r) {
    made.emplace_back(new Communicator(settings, seats[static_cast<std::size_t>(r)], job_key,
                                       all_ranks(ranks), r));
    if (Error error = made.back()->read_forced(settings.algo)) return error;
    made.back()->engine_->set_oversubscribed(crowded);
    made.back()->set_crowded(crowded);
    made.back()->set_devices(!devices_in_use().empty());
    made.back()->join(*hub, {});
  }
  wait_for_tree(seats);
  log.ends("threads of one process");
  return made;
}

// The transports between processes also serve ranks of one process, each started by a thread.
Communicator::All Communicator::init_by_meeting(int ranks, const Settings& settings) {
  const Expected<UniqueId> id = Rendezvous::open(settings);
  if (!id) return id.error();
  std::vector<std::unique_ptr<Communicator>> made(static_cast<std::size_t>(ranks));
  std::vector<std::function<Error()>> jobs;
  for (std::size_t r = 0; r < made.size(); ++r) {
    jobs.emplace_back([&settings, &id, &place = made[r], r, ranks] {
      Expected<std::unique_ptr<Communicator>> one =
          init_rank(settings, *id, static_cast<int>(r), ranks, nullptr);
      if (one) place = std::move(*one);
      return one.error();
    });
  }
  if (Error error = first_failure(run_together(jobs))) return error;
  return made;
}

}  // namespace pith
