// Control planes in virtual time: one for each rank, joined by wires that behave as ControlTcp
// does. Delays are random, messages of a connection stay in order, what is sent to the dead is
// lost, and neighbours hear of a death a little later.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "control/control_plane.hpp"

namespace pith::test {

class ControlWorld;

// A communicator of one rank: remembers what it was told.
class RecordingWatcher : public CommWatcher {
 public:
  std::vector<Error> revoked;
  std::vector<Error> dead;
  std::map<std::uint32_t, CallNote> calls;
  std::optional<Stall> stall;
  int warnings = 0;
  std::optional<Stall> warned;  // the last of them
  // Set where a call waits for all ranks, so that a death ends it: revokes the communicator.
  std::function<void(const Error&)> waits_in;

  void on_revoked(const Error& error) override { revoked.push_back(error); }
  void on_dead(const Error& error) override {
    dead.push_back(error);
    if (waits_in && revoked.empty()) {
      revoked.push_back(error);
      waits_in(error);
    }
  }
  std::optional<CallNote> find_call(std::uint32_t number) override {
    const auto found = calls.find(number);
    return found == calls.end() ? std::nullopt : std::optional(found->second);
  }
  Error refusal_of(std::uint32_t) override { return {}; }
  std::optional<Stall> look(std::uint64_t) override { return stall; }
  void on_stalled(const Stall& what) override {
    ++warnings;
    warned = what;
  }
};

class ControlWorld {
 public:
  enum class Fate { lives, stopped, dead, leaving, left };

  // Another simulation, whose events and clock are used instead of an own queue: nothing else
  // runs these then, run_until_ms() included.
  struct Host {
    std::function<std::uint64_t()> now_ns;
    std::function<void(std::uint64_t delay_ns, std::function<void()> run)> after;
  };

  // What messages cost, instead of random delays: each rank has one thread and one link, and what
  // they have to do at a time waits in line.
  struct Costs {
    std::uint64_t latency_ns = 0;  // 0: random delays and nothing else
    std::uint64_t message_ns = 0;  // at either end
    std::uint64_t connect_ns = 0;  // at the end that is called: accept and handshake
    double byte_ns = 0;
  };

  ControlWorld(int ranks, int fanout, std::uint64_t seed, double timeout_s = 0, Host host = {},
               Costs costs = {0, 0, 0, 0});

  std::mt19937_64& random() { return random_; }
  int pick(int least, int most) { return std::uniform_int_distribution<int>(least, most)(random_); }
  ControlPlane& plane(int rank) { return *nodes_[at(rank)].plane; }
  Fate fate(int rank) const { return nodes_[at(rank)].fate; }
  int ranks() const { return static_cast<int>(nodes_.size()); }
  std::uint64_t now_ns() const { return host_.now_ns ? host_.now_ns() : now_ns_; }
  // How long the last orderly departure took.
  std::uint64_t longest_leave_ns() const { return longest_leave_ns_; }
  // What `from` has sent to `to` so far, whether it has been read or not.
  struct Traffic {
    std::size_t messages = 0;
    std::size_t bytes = 0;
    bool operator==(const Traffic&) const = default;
  };
  // What a rank has sent to all, and the connections that it has.
  Traffic sent_by(int rank) const { return nodes_[at(rank)].sent; }
  std::size_t connections(int rank) const { return nodes_[at(rank)].links.size(); }
  Traffic sent(int from, int to) const {
    const auto found = sent_.find({from, to});
    return found == sent_.end() ? Traffic() : found->second;
  }

  void at_ms(double ms, std::function<void()> action);
  void kill(int rank);
  void stop(int rank) { nodes_[at(rank)].fate = Fate::stopped; }
  void wake(int rank);
  void leave(int rank);
  void run_until_ms(double ms);
  // The rank's thread is woken, as by a call of its own.
  void turn_soon(int rank);

 private:
  struct Message {
    enum class What { text, end, goodbye } what;
    std::string text;
  };
  // One for each dialled connection; both ends hold it until they have let go of it.
  struct Connection {
    int low;
    int high;
    std::uint64_t last_ns[2] = {0, 0};  // arrival of the last message to low, to high
    bool closed[2] = {false, false};    // by low, by high
    bool accepted = false;
  };
  using Link = std::shared_ptr<Connection>;
  class Wire final : public ControlWire {
   public:
    Wire(ControlWorld& world, int rank) : world_(world), rank_(rank) {}
    void send(int to, std::string message) override { world_.send(rank_, to, std::move(message)); }
    void probe(int rank) override { world_.probe(rank_, rank); }
    void hang_up(int rank) override { world_.hang_up(rank_, rank); }

   private:
    ControlWorld& world_;
    const int rank_;
  };
  struct Held {
    Link link;
    Message message;
  };
  struct Node {
    std::unique_ptr<Wire> wire;
    std::unique_ptr<ControlPlane> plane;
    Fate fate = Fate::lives;
    std::map<int, Link> links;
    std::uint64_t leaves_since_ns = 0;
    std::vector<Held> held;  // came while it was stopped
    std::uint64_t busy_until_ns = 0;
    Traffic sent;
  };
  struct Event {
    std::uint64_t at_ns;
    std::uint64_t number;
    std::function<void()> run;
    bool operator<(const Event& other) const {
      return std::pair(at_ns, number) > std::pair(other.at_ns, other.number);
    }
  };

  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
  bool hears(int rank) const {
    const Fate fate = nodes_[at(rank)].fate;
    return fate == Fate::lives || fate == Fate::leaving;
  }
  bool is_open(int rank) const { return hears(rank) || fate(rank) == Fate::stopped; }
  void schedule(std::uint64_t delay_ns, std::function<void()> run);
  std::uint64_t delay();
  std::uint64_t occupy(int rank, std::size_t bytes, std::uint64_t more_ns);
  void send(int from, int to, std::string message);
  void probe(int from, int to);
  void hang_up(int from, int to);
  void post(const Link& link, int to, Message message);
  void release(int rank);
  void come(const Link& link, int to, const Message& message);
  void arrive(const Link& link, int to, const Message& message);
  void turn(int rank);
  void try_to_leave(int rank);
  void close_all(int rank, Message::What how);

  const Host host_;
  const Costs costs_;
  std::mt19937_64 random_;
  std::vector<Node> nodes_;
  std::priority_queue<Event> events_;
  std::uint64_t now_ns_ = 1;
  std::uint64_t events_made_ = 0;
  std::uint64_t longest_leave_ns_ = 0;
  std::map<std::pair<int, int>, Traffic> sent_;  // by sender and receiver
};

}  // namespace pith::test
