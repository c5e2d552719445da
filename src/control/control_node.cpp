#include "control/control_node.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <future>
#include <thread>
#include <utility>

#include "control/members.hpp"
#include "control/tcp/control_tcp.hpp"
#include "core/clock.hpp"
#include "core/packing.hpp"
#include "core/waiting.hpp"

namespace pith {

namespace {

constexpr std::uint64_t goodbye_ns = 1'000'000'000;
constexpr std::chrono::microseconds most_nap{20'000};
constexpr std::chrono::milliseconds cancelled_look{20};

ControlOptions options_of(int rank, int ranks, const Settings& settings) {
  ControlOptions options;
  options.rank = rank;
  options.ranks = ranks;
  options.timeout_s = settings.timeout;
  // The log line must precede the error.
  if (settings.timeout > 0) options.warn_s = std::min(options.warn_s, settings.timeout / 2);
  return options;
}

// Between processes.
class TcpNode final : public ControlNode {
 public:
  TcpNode(int rank, int ranks, const Secret& secret, std::string host, const Settings& settings)
      : ControlNode(options_of(rank, ranks, settings), wire_, secret, std::move(host)),
        wire_({rank, ranks, secret, settings.heartbeat, settings.init_timeout, settings.ports,
               reconnect_of(settings.tcp.reconnect)}) {}
  ~TcpNode() override { leave_alone(); }

  Error start(Gatherer& gatherer) {
    Expected<std::string> address = wire_.listen(host_);
    if (!address) return address.error();
    const Expected<Secret> own = make_secret();
    if (!own) return own.error();
    const auto blobs = gatherer.gather(Packer().text(*address).value(*own).take());
    if (!blobs) return blobs.error();
    std::vector<std::string> addresses;
    std::string randoms;
    for (const std::string& blob : *blobs) {
      Unpacker in(blob);
      addresses.emplace_back(in.text());
      randoms += Packer().value(in.value<Secret>()).take();
    }
    wire_.set_addresses(std::move(addresses));
    secret_ = derive(secret_, std::as_bytes(std::span(randoms)));
    begin();
    return {};
  }
  void turn(std::uint64_t now_ns) override {
    wire_.progress(plane_);
    plane_.turn(now_ns);
  }
  int descriptor() const override { return wire_.descriptor(); }
  Observers* observers() override { return &wire_.observers(); }
  std::size_t descriptors_to_come() const override {
    const std::size_t all = plane_.neighbours();
    return all - std::min(all, wire_.connections());
  }

 private:
  void close() override { wire_.close(monotonic_ns() + goodbye_ns); }

  ControlTcp wire_;
};

// Messages between ranks of one process.
class ThreadHub {
 public:
  explicit ThreadHub(int ranks) : inboxes_(static_cast<std::size_t>(ranks)) {}
  using Message = std::pair<int, std::string>;

  void post(int from, int to, std::string message) {
    {
      const std::lock_guard lock(mutex_);
      inboxes_[static_cast<std::size_t>(to)].emplace_back(from, std::move(message));
    }
    ControlThread::instance().wake();
  }
  std::deque<Message> take(int rank) {
    const std::lock_guard lock(mutex_);
    return std::exchange(inboxes_[static_cast<std::size_t>(rank)], {});
  }

 private:
  std::mutex mutex_;
  std::vector<std::deque<Message>> inboxes_;
};

class ThreadWire final : public ControlWire {
 public:
  ThreadWire(std::shared_ptr<ThreadHub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}
  void send(int to, std::string message) override { hub_->post(rank_, to, std::move(message)); }
  void probe(int) override {}
  void hang_up(int) override {}
  void progress(ControlHandler& handler) {
    for (const auto& [from, text] : hub_->take(rank_)) handler.on_message(from, text);
  }

 private:
  const std::shared_ptr<ThreadHub> hub_;
  const int rank_;
};

class ThreadNode final : public ControlNode {
 public:
  ThreadNode(std::shared_ptr<ThreadHub> hub, int rank, int ranks, const Settings& settings)
      : ControlNode(options_of(rank, ranks, settings), wire_, Secret{}, ""),
        wire_(std::move(hub), rank) {
    begin();
  }
  ~ThreadNode() override { leave_alone(); }
  void turn(std::uint64_t now_ns) override {
    wire_.progress(plane_);
    plane_.turn(now_ns);
  }
  int descriptor() const override { return -1; }

 private:
  ThreadWire wire_;
};

}  // namespace

Expected<std::shared_ptr<ControlNode>> ControlNode::over_tcp(Gatherer& gatherer, std::string host,
                                                             int rank, int ranks,
                                                             const Secret& secret,
                                                             const Settings& settings) {
  auto node = std::make_shared<TcpNode>(rank, ranks, secret, std::move(host), settings);
  if (Error error = node->start(gatherer)) return error;
  return std::shared_ptr<ControlNode>(std::move(node));
}

std::vector<std::shared_ptr<ControlNode>> ControlNode::among_threads(int ranks,
                                                                     const Settings& settings) {
  const auto hub = std::make_shared<ThreadHub>(ranks);
  std::vector<std::shared_ptr<ControlNode>> nodes;
  nodes.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    nodes.push_back(std::make_shared<ThreadNode>(hub, rank, ranks, settings));
  }
  return nodes;
}

void ControlNode::begin() {
  plane_.start(monotonic_ns());
  ControlThread::instance().add(*this);
  running_ = true;
}

void ControlNode::leave_alone() {
  ControlNode* const node = this;
  leave({&node, 1}, false);
}

// After a death the remaining ranks may wait for each other in vain, so the wait is shorter.
void ControlNode::leave(std::span<ControlNode* const> nodes, bool process_ends) {
  const auto is_away = [process_ends](ControlNode* node) {
    return !node->running_ || node->plane_.try_to_leave(process_ends);
  };
  const bool any_died =
      std::ranges::any_of(nodes, [](const ControlNode* node) { return node->plane_.any_died(); });
  const std::uint64_t until = monotonic_ns() + (any_died ? goodbye_ns / 4 : goodbye_ns);
  // Where hundreds of ranks leave one host, polling too often would slow the others down.
  std::chrono::microseconds nap{100};
  while (!std::ranges::all_of(nodes, is_away) && monotonic_ns() < until) {
    ControlThread::instance().wake();
    // A communicator in a global variable is destroyed after the thread has ended.
    if (ControlThread::instance().stopped()) {
      for (ControlNode* node : nodes) node->turn(monotonic_ns());
    }
    std::this_thread::sleep_for(nap);
    nap = std::min(nap * 3 / 2, most_nap);
  }
  for (ControlNode* node : nodes) {
    if (std::exchange(node->running_, false)) ControlThread::instance().remove(*node);
    node->plane_.close();
    node->close();
  }
}

void ControlNode::revoke(CommKey comm, const Error& error, bool known) {
  plane_.revoke(comm, error, known);
  ControlThread::instance().wake();
}

void ControlNode::suspect(CommKey comm, const CallNote& call) {
  plane_.suspect(comm, call);
  ControlThread::instance().wake();
}

bool ControlNode::propose(CommKey comm, const std::string& blob) {
  const bool proposed = plane_.propose(comm, blob);
  ControlThread::instance().wake();
  return proposed;
}

void ControlNode::gather(const GatherKey& key, ControlPlane::Need need,
                         const std::vector<int>& participants, std::string blob,
                         ControlPlane::Done done, CallNote call) {
  plane_.gather(key, need, participants, std::move(blob), std::move(done), std::move(call));
  ControlThread::instance().wake();
}

GatherResult ControlNode::gather(const GatherKey& key, ControlPlane::Need need,
                                 const std::vector<int>& participants, std::string blob,
                                 const Cancellation* cancellation, CallNote call) {
  const auto cancelled = [&] { return cancellation ? cancellation->error() : Error(); };
  if (const Error error = cancelled()) return {error, {}, {}};
  auto promise = std::make_shared<std::promise<GatherResult>>();
  std::future<GatherResult> result = promise->get_future();
  gather(
      key, need, participants, std::move(blob),
      [promise](const GatherResult& decided) { promise->set_value(decided); }, std::move(call));
  while (cancellation && result.wait_for(cancelled_look) != std::future_status::ready) {
    static_cast<void>(is_interrupted());
    if (const Error error = cancelled()) return {error, {}, {}};
  }
  return result.get();
}

ControlGatherer::ControlGatherer(ControlNode& node, CommKey comm, std::vector<int> members,
                                 std::vector<int> named, double timeout_s,
                                 std::shared_ptr<const Cancellation> cancellation)
    : Gatherer(timeout_s, std::move(cancellation)),
      node_(node),
      comm_(comm),
      members_(std::move(members)),
      named_(std::move(named)) {}

Error ControlGatherer::failure() const {
  if (Error error = cancelled()) return error;
  if (Error error = node_.plane().revocation_of(comm_)) return error;
  for (const int rank : node_.plane().dead()) {
    const int place = place_of(named_, rank);
    if (place < 0) continue;
    return {Code::remote, fmt::format("rank {}: {}", place, node_.plane().cause_of(rank)), place};
  }
  return {};
}

Expected<std::vector<std::string>> ControlGatherer::gather(const std::string& mine) {
  const GatherResult result =
      node_.gather({comm_, round_++}, ControlPlane::Need::all, named_, mine, cancellation());
  if (result.error) return result.error;
  std::vector<std::string> blobs;
  for (const int member : members_) {
    const auto blob = result.blobs.find(member);
    if (blob == result.blobs.end()) return Error(Code::internal, "a gather without all its blobs");
    blobs.push_back(blob->second);
  }
  return blobs;
}

}  // namespace pith
