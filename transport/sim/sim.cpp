#include "transport/sim/sim.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "transport/sim/sim_wire.hpp"

namespace pith {

// Copies of messages too long for a SimMessage, pooled by powers of two.
class SimWorld::Buffers {
 public:
  std::byte* take(std::size_t bytes) {
    auto& list = free_[class_of(bytes)];
    if (list.empty()) {
      all_.push_back(std::make_unique_for_overwrite<std::byte[]>(std::bit_ceil(bytes)));
      return all_.back().get();
    }
    std::byte* buffer = list.back();
    list.pop_back();
    return buffer;
  }
  void give(std::byte* buffer, std::size_t bytes) { free_[class_of(bytes)].push_back(buffer); }

 private:
  static std::size_t class_of(std::size_t bytes) {
    return static_cast<std::size_t>(std::bit_width(bytes - 1));
  }
  std::array<std::vector<std::byte*>, 65> free_;
  std::vector<std::unique_ptr<std::byte[]>> all_;
};

// --- the world

SimWorld::SimWorld(SimConfig config)
    : config_(std::move(config)),
      random_(config_.seed),
      lives_(index(config_.ranks)),
      transports_(index(config_.ranks)),
      buffers_(std::make_unique<Buffers>()) {}

SimWorld::~SimWorld() = default;

void SimWorld::add(SimTransport& transport) { transports_[index(transport.rank())] = &transport; }
void SimWorld::remove(SimTransport& transport) { transports_[index(transport.rank())] = nullptr; }

bool SimWorld::step() {
  if (!held_wires_.empty() && deliver_held()) return true;
  if (scheduler_.run_one()) {
    ++steps_;
    return true;
  }
  if (!ended_wires_.empty() && report_lost()) return true;
  if (!queue_.has_work()) return false;
  ++steps_;
  const SimQueue::Event event = queue_.pop();
  now_ = event.time;
  event.fire(event.object);
  return true;
}

void SimWorld::after(double seconds, std::function<void()> action, bool watches) {
  Timer& timer = timers_.emplace_back(Timer{this, std::move(action), {}});
  timer.self = std::prev(timers_.end());
  auto fire = [](void* object) {
    auto& due = *static_cast<Timer*>(object);
    const std::function<void()> run = std::move(due.action);
    due.world->timers_.erase(due.self);
    run();
  };
  schedule(now_ + sim_time(seconds), fire, &timer, watches);
}

void SimWorld::kill(int rank, double after_s) {
  auto die = [this, rank] {
    lives_[index(rank)] = {Life::dead, now_};
    if (on_peer_lost) after(config_.detection_s, [this, rank] { notice(rank); });
  };
  after(after_s, die, true);
}

// Makes a death known: sends to the rank fail from now on, also those that wait for room.
void SimWorld::notice(int rank) {
  lives_[index(rank)].noticed = true;
  for (int observer = 0; observer < config_.ranks; ++observer) {
    if (!alive(observer)) continue;
    ended_wires_.push_back(&transports_[index(rank)]->wire(observer));
    transports_[index(observer)]->end_sends(rank);
  }
  if (on_death) on_death();
}

// Reports a dead rank to those that wait for it, once all it had sent has arrived.
bool SimWorld::report_lost() {
  for (const SimWire* wire : ended_wires_) {
    if (!alive(wire->to) || wire->messages != 0) continue;
    if (!transports_[index(wire->to)]->mailbox_.awaited(wire->from)) continue;
    on_peer_lost(wire->to, wire->from);
    return true;
  }
  return false;
}

void SimWorld::bury(int rank) {
  lives_[index(rank)].state = Life::buried;
  for (SimMessage* message : std::exchange(unburied_, {})) abandon(*message);
}

// When work ends that takes this long at the configured bandwidth, with the changes on the way.
SimTime SimWorld::transfer_end(SimTime start, double picoseconds) const {
  const auto& changes = config_.bandwidth;
  if (changes.empty() || picoseconds <= 0) return start + whole_picoseconds(picoseconds);
  auto next = std::upper_bound(
      changes.begin(), changes.end(), start,
      [](SimTime time, const SimConfig::Bandwidth& b) { return time < sim_time(b.at_s); });
  double factor = next == changes.begin() ? 1.0 : std::prev(next)->factor;
  for (; next != changes.end(); ++next) {
    const double span = static_cast<double>(sim_time(next->at_s) - start) * factor;
    if (span >= picoseconds) break;
    picoseconds -= span;
    start = sim_time(next->at_s);
    factor = next->factor;
  }
  return start + whole_picoseconds(picoseconds / factor);
}

SimTime SimWorld::jitter() {
  random_ += 0x9E3779B97F4A7C15U;  // SplitMix64
  std::uint64_t bits = random_;
  bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9U;
  bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBU;
  const double uniform = static_cast<double>((bits ^ (bits >> 31)) >> 11) * 0x1p-53;
  return sim_time(config_.jitter_s * uniform);
}

// --- messages

SimMessage& SimWorld::new_message(const Send& send, SimWire& wire) {
  if (!spare_messages_) {
    constexpr std::size_t batch = 256;
    messages_.push_back(std::make_unique<SimMessage[]>(batch));
    for (std::size_t i = 0; i < batch; ++i) {
      messages_.back()[i].world = this;
      messages_.back()[i].next = std::exchange(spare_messages_, &messages_.back()[i]);
    }
  }
  SimMessage& message = *spare_messages_;
  spare_messages_ = std::exchange(message.next, nullptr);
  message.header = send.header;
  message.wire = &wire;
  message.send = nullptr;
  message.incoming = nullptr;
  message.uses = 1;
  const std::size_t length = send.header.length;
  message.data = length <= SimMessage::small_bytes ? message.small.data() : buffers_->take(length);
  if (length != 0) std::memcpy(message.data, send.data, length);
  return message;
}

void SimWorld::drop_use(SimMessage& message) {
  if (--message.uses != 0) return;
  if (message.data != message.small.data()) buffers_->give(message.data, message.header.length);
  message.next = std::exchange(spare_messages_, &message);
}

bool SimWorld::launch(Send& send, SimWire& wire) {
  SimMessage& message = new_message(send, wire);
  SimTransport& sender = *wire.sender;
  const double bytes = static_cast<double>(send.header.length + config_.header_bytes);
  if (!wire.out_free) sender.find_ports(wire);
  const SimTime start = std::max(now_, *wire.out_free);
  message.leaves = *wire.out_free = transfer_end(start, wire.ps_per_byte * bytes);
  SimTime arrival = start + wire.latency;
  if (config_.jitter_s > 0) arrival += jitter();
  wire.last_arrival = arrival = std::max(arrival, wire.last_arrival);
  wire.bytes += wire_room_of(send.header);
  ++wire.messages;
  schedule(
      arrival,
      [](void* object) {
        auto& reached = *static_cast<SimMessage*>(object);
        reached.world->arrived(reached);
      },
      &message);
  if (message.leaves == now_) return true;
  message.uses = 2;
  message.send = &send;
  message.leaving = static_cast<std::uint32_t>(sender.leaving_.size());
  sender.leaving_.push_back(&message);
  schedule(
      message.leaves,
      [](void* object) {
        auto& gone = *static_cast<SimMessage*>(object);
        gone.world->left(gone);
      },
      &message);
  return false;
}

void SimWorld::left(SimMessage& message) {
  if (lives_[index(message.wire->from)].state == Life::dead) return;  // its sender waits for ever
  if (message.send) {
    auto& leaving = message.wire->sender->leaving_;
    leaving.back()->leaving = message.leaving;
    leaving[message.leaving] = leaving.back();
    leaving.pop_back();
    scheduler_.complete(*std::exchange(message.send, nullptr));
  }
  drop_use(message);
}

// A lost message keeps its room on the wire, one end of which is dead.
bool SimWorld::lost(const SimMessage& message) const {
  const Life& sender = lives_[index(message.wire->from)];
  if (!alive(message.wire->to)) return true;
  return sender.state != Life::lives && message.leaves > sender.died;
}

// The first byte has arrived.
void SimWorld::arrived(SimMessage& message) {
  SimWire& wire = *message.wire;
  if (lost(message)) {
    --wire.messages;
    return drop_use(message);
  }
  SimTransport& receiver = *transports_[index(wire.to)];
  const double bytes = static_cast<double>(message.header.length + config_.header_bytes);
  const SimTime start = std::max(now_, *wire.in_free);
  const SimTime end = *wire.in_free = transfer_end(start, wire.ps_per_byte * bytes);
  if (message.header.length > config_.slot_bytes && !wire.held &&
      receiver.mailbox_.accepts(wire.from)) {
    message.incoming = &receiver.mailbox_.begin(wire.from, message.header);
  }
  if (end == now_) return transferred(message);
  schedule(
      end,
      [](void* object) {
        auto& complete = *static_cast<SimMessage*>(object);
        complete.world->transferred(complete);
      },
      &message);
}

// The rest of a message that has begun to arrive will never come.
void SimWorld::cut(SimMessage& message) {
  --message.wire->messages;
  if (!message.incoming) return drop_use(message);
  if (!alive(message.wire->to)) return abandon(message);
  after(config_.detection_s, [this, &message] { abandon(message); });
}

void SimWorld::abandon(SimMessage& message) {
  SimTransport& receiver = *transports_[index(message.wire->to)];
  if (!runs(receiver.rank())) return unburied_.push_back(&message);
  const int from = message.wire->from;
  receiver.mailbox_.abandon(*message.incoming,
                            Error(Code::remote, fmt::format("rank {} is lost", from), from));
  drop_use(message);
}

// The last byte has arrived.
void SimWorld::transferred(SimMessage& message) {
  if (lost(message)) return cut(message);
  SimWire& wire = *message.wire;
  const Mailbox& mailbox = transports_[index(wire.to)]->mailbox_;
  if (message.incoming || (!wire.held && mailbox.accepts(wire.from))) return hand_over(message);
  if (wire.held) {
    wire.held_tail->next = &message;
  } else {
    wire.held = &message;
    held_wires_.push_back(&wire);
  }
  wire.held_tail = &message;
}

void SimWorld::hand_over(SimMessage& message) {
  SimWire& wire = *message.wire;
  Mailbox& mailbox = transports_[index(wire.to)]->mailbox_;
  wire.bytes -= wire_room_of(message.header);
  --wire.messages;
  if (message.incoming) {
    // Copied only now that all of it is here: nothing was promised earlier.
    if (std::byte* into = message.incoming->data) {
      std::memcpy(into, message.data, message.header.length);
    }
    mailbox.finish(*message.incoming);
    drop_use(message);
  } else {
    const auto slot = reinterpret_cast<std::uint64_t>(&message);
    ++leased_;
    if (mailbox.deliver(wire.from, message.header, message.data, this, slot) ==
        Mailbox::Taken::copied) {
      release_slot(wire.from, slot);
    }
  }
  start_waiting(wire);
}

void SimWorld::release_slot(int, std::uint64_t slot) {
  --leased_;
  drop_use(*reinterpret_cast<SimMessage*>(slot));
}

void SimWorld::start_waiting(SimWire& wire) {
  if (!alive(wire.from)) return;
  while (wire.waiting) {
    auto& send = static_cast<Send&>(*wire.waiting);
    if (wire.bytes != 0 && wire.bytes + wire_room_of(send.header) > config_.wire_bytes) return;
    wire.waiting = std::exchange(send.next, nullptr);
    if (!wire.waiting) wire.waiting_tail = nullptr;
    if (launch(send, wire)) scheduler_.complete(send);
  }
}

bool SimWorld::deliver_held() {
  bool any = false;
  for (std::size_t i = 0; i < held_wires_.size();) {
    SimWire& wire = *held_wires_[i];
    const Mailbox& mailbox = transports_[index(wire.to)]->mailbox_;
    while (wire.held && alive(wire.to) && mailbox.accepts(wire.from)) {
      SimMessage& message = *wire.held;
      wire.held = std::exchange(message.next, nullptr);
      hand_over(message);
      any = true;
    }
    if (wire.held) {
      ++i;
    } else {
      held_wires_.erase(held_wires_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  return any;
}

std::string SimWorld::deadlock_report() const {
  std::string lines;
  auto name = [this](int rank) {
    return fmt::format("rank {}{}", rank, runs(rank) ? "" : " (dead)");
  };
  auto add_line = [&](int rank, const char* what, int peer, const Tag& tag) {
    lines += fmt::format("{} waits {} {}, call {} lane {} step {}\n", name(rank), what, name(peer),
                         tag.call, tag.lane, tag.step);
  };
  for (const SimTransport* transport : transports_) {
    if (!transport) continue;
    const int rank = transport->rank();
    transport->mailbox_.for_each_waiting(
        [&](int peer, const Tag& tag) { add_line(rank, "for", peer, tag); });
    for (const auto& wire : transport->wires_) {
      for (const Operation* at = wire->waiting; at; at = at->next) {
        const auto& send = static_cast<const Send&>(*at);
        add_line(rank, "for room to send to", wire->to, send.header.tag());
      }
    }
  }
  return lines;
}

}  // namespace pith
