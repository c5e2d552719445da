// The transport in virtual time: thousands of ranks on one thread, reproducible from a seed.
//
// Links: between each ordered pair of ranks a latency alpha and a time per byte beta. Every rank
// has one outgoing and one incoming port, both busy for beta times the bytes of a message. A
// message is cut through: it arrives at alpha after its first byte left, and is delivered beta *
// bytes later when the incoming port is free; a port serves messages in the order of their arrival.
// Ranks of a host may share a port for messages that leave it.
//
// A wire holds a limited number of bytes; a send beyond it suspends. Bytes stay on the wire while
// the receiver's Mailbox does not accept them, so a rank far ahead is held back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/mailbox.hpp"
#include "core/scheduler.hpp"
#include "transport/sim/sim_queue.hpp"
#include "transport/transport.hpp"

namespace pith {

struct SimLink {
  double latency_s = 1e-6;
  double s_per_byte = 1e-10;
};

struct SimConfig {
  // From `at_s` on, all links run at `factor` times their bandwidth. The last factor is not zero.
  struct Bandwidth {
    double at_s = 0;
    double factor = 1;
  };

  int ranks = 1;
  std::uint64_t seed = 1;
  SimLink link;
  std::function<SimLink(int from, int to)> link_of;  // overrides `link`
  // Ranks with the same number here share an uplink, one port each way, for messages from and to
  // ranks with another number; it is that of the rank of this number. Empty: there are none.
  std::function<int(int rank)> uplink_of;
  // Added to every latency: uniform between 0 and this. Messages of one pair stay in order.
  double jitter_s = 0;
  std::vector<Bandwidth> bandwidth;  // in the order of time
  std::size_t wire_bytes = std::size_t{4} << 20;
  std::size_t slot_bytes = std::size_t{64} << 10;  // larger messages are delivered in pieces
  std::size_t header_bytes = 0;                    // charged with every message
  double detection_s = 1e-3;                       // from a death to on_peer_lost
  double kernel_s = 0;                             // charged per kernel
  double gamma_s_per_byte = 0;                     // charged per byte of a kernel's work
  // Kernels do their work when their virtual time ends instead of when they are submitted: an
  // algorithm that forgets a fence gets wrong data.
  bool late_kernels = false;
  // How `peer` reaches memory of `owner`; empty: not at all. Access takes no time. Not for
  // late_kernels: only devices work on a peer's memory later than at once.
  std::function<MemoryHandle::Reach(int owner, int peer)> reach;
};

class SimTransport;
struct SimMessage;
struct SimWire;

class SimWorld final : private SlotOwner {
 public:
  explicit SimWorld(SimConfig config);
  ~SimWorld();
  SimWorld(const SimWorld&) = delete;
  SimWorld& operator=(const SimWorld&) = delete;

  const SimConfig& config() const { return config_; }
  Scheduler& scheduler() { return scheduler_; }
  SimTime now() const { return now_; }

  // Resumes one coroutine or fires one event. False: nothing is left to do, not counting events
  // that only watch; unfinished coroutines are then in a deadlock.
  bool step();
  void run() {
    while (step()) {
    }
  }
  std::uint64_t steps() const { return steps_; }

  void schedule(SimTime time, SimQueue::Fire fire, void* object, bool watches = false) {
    queue_.push(time < now_ ? now_ : time, fire, object, watches);
  }
  void after(double seconds, std::function<void()> action, bool watches = false);

  // From then on nothing of this rank runs, and what has not left its port never will. Every other
  // rank learns of it through on_peer_lost. Does not keep the simulation running until then.
  void kill(int rank, double after_s);
  bool alive(int rank) const { return lives_[index(rank)].state == Life::lives; }
  bool runs(int rank) const { return lives_[index(rank)].state != Life::dead; }
  std::function<void(int observer, int lost)> on_peer_lost;
  // Called when all know of a death.
  std::function<void()> on_death;
  // Lets the coroutines of a dead rank run to their end: quiesce its mailbox, transport and compute
  // afterwards. For cleaning up; nothing of it reaches another rank.
  void bury(int rank);

  // One line for each waiting receive and each send without room.
  std::string deadlock_report() const;
  // Messages that receivers read in place.
  std::size_t leased() const { return leased_; }

 private:
  friend class SimTransport;
  class Buffers;
  struct Timer {
    SimWorld* world;
    std::function<void()> action;
    std::list<Timer>::iterator self;
  };
  struct Life {
    enum State : std::uint8_t { lives, dead, buried } state = lives;
    SimTime died = 0;
    bool noticed = false;  // its connections have ended
  };

  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  void add(SimTransport& transport);
  void remove(SimTransport& transport);
  SimTime transfer_end(SimTime start, double picoseconds) const;
  SimTime jitter();
  SimMessage& new_message(const Send& send, SimWire& wire);
  void drop_use(SimMessage& message);
  // True: the bytes have left already.
  bool launch(Send& send, SimWire& wire);
  void left(SimMessage& message);
  void arrived(SimMessage& message);
  void transferred(SimMessage& message);
  void cut(SimMessage& message);
  void abandon(SimMessage& message);
  void hand_over(SimMessage& message);
  void start_waiting(SimWire& wire);
  bool deliver_held();
  void notice(int rank);
  bool report_lost();
  bool lost(const SimMessage& message) const;
  void release_slot(int peer, std::uint64_t slot) override;

  SimConfig config_;
  Scheduler scheduler_;
  SimQueue queue_;
  SimTime now_ = 0;
  std::uint64_t steps_ = 0;
  std::uint64_t random_;
  std::vector<Life> lives_;
  std::vector<SimTransport*> transports_;
  std::vector<SimWire*> held_wires_;   // with messages that their receiver does not accept yet
  std::vector<SimWire*> ended_wires_;  // from ranks that are known to be dead
  std::vector<SimMessage*> unburied_;  // had begun to arrive at ranks that have died
  std::list<Timer> timers_;
  std::vector<std::unique_ptr<SimMessage[]>> messages_;
  SimMessage* spare_messages_ = nullptr;
  std::unique_ptr<Buffers> buffers_;
  std::size_t leased_ = 0;
};

// This rank's end of all wires. Peers are numbered by rank.
class SimTransport final : public Transport {
 public:
  SimTransport(SimWorld& world, int rank, Mailbox& mailbox);
  ~SimTransport() override;

  std::string_view name() const override { return "sim"; }
  bool start(Send& send) override;
  std::size_t slot_bytes() const override { return world_.config().slot_bytes; }
  MemoryHandle expose(int peer, Bytes memory) override;
  std::byte* map(int peer, MemoryHandle handle) override;
  Error copy_from(int peer, std::uint64_t where, Bytes into) override;
  Error copy_to(int peer, std::uint64_t where, Bytes from) override;
  std::uint64_t heard_from(int) const override { return 0; }
  void quiesce(const CommState& comm, const Error& error) override;
  void for_each_sending(const std::function<void(const Send&)>& see) const override;

  // Time passes by events, not by polling.
  bool progress() override { return false; }
  bool busy() const override { return !leaving_.empty(); }
  int descriptor() const override { return -1; }
  bool arm() override { return true; }
  void disarm() override {}

  int rank() const { return rank_; }

 private:
  friend class SimWorld;
  // Until when a port is busy: that of one rank, or an uplink.
  struct Ports {
    SimTime out_free = 0;
    SimTime in_free = 0;
  };
  SimWire& wire(int peer);
  void find_ports(SimWire& wire);
  void end_sends(int peer);

  SimWorld& world_;
  int rank_;
  Mailbox& mailbox_;
  Ports own_;
  Ports uplink_;                                 // of those that share this rank's
  std::vector<std::unique_ptr<SimWire>> wires_;  // in order of first use
  std::unordered_map<int, SimWire*> wire_of_;
  SimWire* last_used_ = nullptr;
  std::vector<SimMessage*> leaving_;  // whose senders wait for the port
};

}  // namespace pith
