// What the simulator keeps per message and per ordered pair of ranks; private to sim.cpp and
// sim_transport.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/mailbox.hpp"
#include "transport/sim/sim_queue.hpp"

namespace pith {

class SimTransport;
class SimWorld;
struct SimMessage;

// What a message takes of its wire's capacity; empty ones take some, too.
inline std::size_t wire_room_of(const Header& header) { return header.length + sizeof(Header); }

struct SimWire {
  int from = 0;
  int to = 0;
  SimTime latency = 0;
  double ps_per_byte = 0;
  SimTime last_arrival = 0;  // jitter must not let one message overtake another
  std::size_t bytes = 0;     // on the way or held back
  std::size_t messages = 0;  // likewise, without those that are lost
  SimTransport* sender = nullptr;
  SimTime* out_free = nullptr;  // of the ports at its ends; null until its first message
  SimTime* in_free = nullptr;
  // Sends without room, and messages that the receiver does not accept yet.
  Operation* waiting = nullptr;
  Operation* waiting_tail = nullptr;
  SimMessage* held = nullptr;
  SimMessage* held_tail = nullptr;
};

struct SimMessage {
  static constexpr std::size_t small_bytes = 64;

  Header header;
  SimWorld* world = nullptr;
  SimWire* wire = nullptr;
  Send* send = nullptr;       // while its bytes have not left
  std::uint32_t leaving = 0;  // its place in SimTransport::leaving_
  std::uint32_t uses = 0;     // by the outgoing port, and by the way to the receiver or its lease
  SimTime leaves = 0;
  SimMessage* next = nullptr;  // in the list of spare messages, or of its wire's held ones
  Mailbox::Incoming* incoming = nullptr;
  std::byte* data = nullptr;
  std::array<std::byte, small_bytes> small;
};

}  // namespace pith
