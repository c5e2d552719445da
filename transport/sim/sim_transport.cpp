#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "transport/sim/sim.hpp"
#include "transport/sim/sim_wire.hpp"

namespace pith {

namespace {

Error lost(int rank) { return {Code::remote, fmt::format("rank {} is lost", rank), rank}; }

}  // namespace

SimTransport::SimTransport(SimWorld& world, int rank, Mailbox& mailbox)
    : world_(world), rank_(rank), mailbox_(mailbox) {
  world_.add(*this);
}

SimTransport::~SimTransport() { world_.remove(*this); }

SimWire& SimTransport::wire(int peer) {
  if (last_used_ && last_used_->to == peer) return *last_used_;
  SimWire*& known = wire_of_[peer];
  last_used_ = known;
  if (known) return *known;
  const SimConfig& config = world_.config();
  const SimLink link = config.link_of ? config.link_of(rank_, peer) : config.link;
  wires_.push_back(std::make_unique<SimWire>());
  known = wires_.back().get();
  known->from = rank_;
  known->to = peer;
  known->latency = sim_time(link.latency_s);
  known->ps_per_byte = link.s_per_byte * 1e12;
  known->sender = this;
  last_used_ = known;
  return *known;
}

// Not when the wire is made: then its receiver may not be there yet.
void SimTransport::find_ports(SimWire& wire) {
  const auto& uplink_of = world_.config().uplink_of;
  const int here = uplink_of ? uplink_of(wire.from) : 0;
  const int there = uplink_of ? uplink_of(wire.to) : 0;
  const auto at = [&](int rank) -> SimTransport& {
    return *world_.transports_[SimWorld::index(rank)];
  };
  wire.out_free = here == there ? &own_.out_free : &at(here).uplink_.out_free;
  wire.in_free = here == there ? &at(wire.to).own_.in_free : &at(there).uplink_.in_free;
}

bool SimTransport::start(Send& send) {
  if (!world_.alive(rank_)) {
    send.error = lost(rank_);
    return true;
  }
  if (world_.lives_[SimWorld::index(send.peer)].noticed) {
    send.error = lost(send.peer);
    return true;
  }
  SimWire& to = wire(send.peer);
  if (to.waiting ||
      (to.bytes != 0 && to.bytes + wire_room_of(send.header) > world_.config().wire_bytes)) {
    send.next = nullptr;
    (to.waiting ? to.waiting_tail->next : to.waiting) = &send;
    to.waiting_tail = &send;
    return false;
  }
  return world_.launch(send, to);
}

void SimTransport::end_sends(int peer) {
  SimWire& to = wire(peer);
  Operation* at = std::exchange(to.waiting, nullptr);
  to.waiting_tail = nullptr;
  while (at) {
    Operation& send = *std::exchange(at, at->next);
    send.next = nullptr;
    send.error = lost(peer);
    world_.scheduler_.complete(send);
  }
}

// All ranks share one address space, so an address is all that a peer needs.
MemoryHandle SimTransport::expose(int peer, Bytes memory) {
  const SimConfig& config = world_.config();
  if (!config.reach || !memory.data) return {};
  return {reinterpret_cast<std::uint64_t>(memory.data), config.reach(rank_, peer)};
}

std::byte* SimTransport::map(int, MemoryHandle handle) {
  return reinterpret_cast<std::byte*>(handle.where);
}

Error SimTransport::copy_from(int, std::uint64_t where, Bytes into) {
  std::memcpy(into.data, reinterpret_cast<const std::byte*>(where), into.size);
  return {};
}

Error SimTransport::copy_to(int, std::uint64_t where, Bytes from) {
  std::memcpy(reinterpret_cast<std::byte*>(where), from.data, from.size);
  return {};
}

void SimTransport::quiesce(const CommState& comm, const Error& error) {
  std::size_t kept = 0;
  for (SimMessage* message : leaving_) {
    // The message is delivered from its copy.
    if (message->send->comm == &comm) {
      message->send->error = error;
      world_.scheduler_.complete(*std::exchange(message->send, nullptr));
      continue;
    }
    message->leaving = static_cast<std::uint32_t>(kept);
    leaving_[kept++] = message;
  }
  leaving_.resize(kept);
  for (const auto& wire : wires_) {
    Operation* at = std::exchange(wire->waiting, nullptr);
    wire->waiting_tail = nullptr;
    while (at) {
      Operation* next = std::exchange(at->next, nullptr);
      if (at->comm == &comm) {
        at->error = error;
        world_.scheduler_.complete(*at);
      } else {
        (wire->waiting ? wire->waiting_tail->next : wire->waiting) = at;
        wire->waiting_tail = at;
      }
      at = next;
    }
    world_.start_waiting(*wire);
  }
}

void SimTransport::for_each_sending(const std::function<void(const Send&)>& see) const {
  for (const SimMessage* message : leaving_) {
    if (message->send) see(*message->send);
  }
  for (const auto& wire : wires_) {
    for (const Operation* at = wire->waiting; at; at = at->next) {
      see(static_cast<const Send&>(*at));
    }
  }
}

}  // namespace pith
