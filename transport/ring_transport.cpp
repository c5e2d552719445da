#include "transport/ring_transport.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <new>

#include <fmt/format.h>

namespace pith {

namespace {

// What one call moves to or from one peer, so that directions and peers alternate.
constexpr int cells_per_turn = 16;
constexpr int pieces_per_turn = 2;
constexpr std::uint32_t idle_turns_mask = 4095;
constexpr std::uint64_t small_slot_bit = std::uint64_t{1} << 32;
// Between two readings of the clock, a line that another core has just written takes 50 to 70 ns
// where they share a cache, and 150 to 180 where they do not (Zen 3, medians and nine in ten).
constexpr std::uint32_t shared_line_ns = 100;

// The longer ago a slot was read, the fewer of its lines does its reader's cache hold, from which
// they must be taken to fill it: 2 ranks, 256 KiB, 0.73 of the time with all slots in turn (Zen 5).
// Of many peers, all slots in turn would fill the caches; ranks that share cores gain nothing.
std::uint32_t slots_in_turn(const RingShape& shape, std::size_t peers, bool oversubscribed) {
  return oversubscribed ? 1 : std::max(1u, shape.large_slots / static_cast<std::uint32_t>(peers));
}

}  // namespace

struct alignas(64) RingTransport::Peer {
  RingReceiver in;
  int rank = -1;
  int doorbell = -1;
  RingSleep* sleep = nullptr;
  Mailbox::Incoming* incoming = nullptr;
  std::size_t arrived = 0;
  std::uint64_t taken = 0;  // messages and pieces

  RingSender out;
  // What lines from the peer took. One that was quick shows a shared cache: others were disturbed.
  std::array<std::uint32_t, 4> line_ns{~0U, ~0U, ~0U, ~0U};
  std::uint32_t lines = 0;

  Operation* first = nullptr;  // waiting sends, in order
  Operation* last = nullptr;
  std::size_t sent = 0;             // bytes of the first one
  const std::byte* rest = nullptr;  // the remaining bytes of the first one
  std::vector<std::byte> orphan;    // a copy of these, once the send has ended
  Send orphan_send;
  Error ended;
};

RingTransport::RingTransport(Scheduler& scheduler, Mailbox& mailbox, int ranks,
                             const RingShape& shape)
    : shape_(shape),
      scheduler_(scheduler),
      mailbox_(mailbox),
      peers_(static_cast<std::size_t>(ranks)) {}

RingTransport::~RingTransport() = default;

void RingTransport::join(int rank, const Link& link) {
  auto peer = std::make_unique<Peer>();
  peer->in = RingReceiver(shape_, link.inbound);
  peer->out = RingSender(shape_, link.outbound);
  peer->rank = rank;
  peer->sleep = link.peer_sleep;
  peer->doorbell = link.doorbell;
  attached_.push_back(peer.get());
  peers_[static_cast<std::size_t>(rank)] = std::move(peer);
}

void RingTransport::part(int rank) {
  auto& peer = peers_[static_cast<std::size_t>(rank)];
  std::erase(attached_, peer.get());
  std::erase(sending_, peer.get());
  peer.reset();
}

void RingTransport::wake(Peer& peer, std::uint32_t reasons) {
  if ((peer.sleep->bits.load(std::memory_order_relaxed) & reasons) == 0) [[likely]]
    return;
  if (peer.sleep->bits.exchange(RingSleep::awake, std::memory_order_acq_rel) == 0) return;
  if (peer.doorbell < 0) return ring(peer.rank);
  const std::uint64_t one = 1;
  // A full counter has been rung already; a closed one belongs to a peer that is gone.
  [[maybe_unused]] const auto written = write(peer.doorbell, &one, sizeof one);
}

// Sends what fits; true when the whole message is in the ring.
bool RingTransport::advance(Peer& peer, const Header& header) {
  const bool is_large = header.length > shape_.small_bytes;
  const std::uint32_t in_turn =
      is_large ? slots_in_turn(shape_, attached_.size(), is_oversubscribed()) : 1;
  if (header.length <= shape_.large_bytes) {
    if (!peer.out.push(header, peer.rest, in_turn)) return false;
    wake(peer, RingSleep::for_messages);
    return true;
  }
  for (int turn = 0; turn < pieces_per_turn && peer.sent < header.length; ++turn) {
    const std::size_t length = std::min<std::size_t>(header.length - peer.sent, shape_.large_bytes);
    const Header* const first = peer.sent == 0 ? &header : nullptr;
    if (!peer.out.push_piece(first, peer.rest, length, in_turn)) return false;
    wake(peer, RingSleep::for_messages);
    peer.sent += length;
    peer.rest += length;
  }
  return peer.sent == header.length;
}

bool RingTransport::start(Send& send) {
  Peer* peer = peers_[static_cast<std::size_t>(send.peer)].get();
  if (!peer) {
    send.error = Error(Code::internal, fmt::format("rank {} is not attached", send.peer));
    return true;
  }
  if (peer->ended) [[unlikely]] {
    send.error = peer->ended;
    return true;
  }
  if (!peer->first) [[likely]] {
    peer->sent = 0;
    peer->rest = send.data;
    if (advance(*peer, send.header)) return true;
  }
  send.next = nullptr;
  if (peer->first) {
    peer->last->next = &send;
  } else {
    sending_.push_back(peer);
    peer->first = &send;
  }
  peer->last = &send;
  return false;
}

void RingTransport::finish_front(Peer& peer, const Error& error) {
  auto* send = static_cast<Send*>(peer.first);
  peer.first = send->next;
  send->next = nullptr;
  peer.sent = 0;
  peer.rest = peer.first ? static_cast<Send*>(peer.first)->data : nullptr;
  if (!peer.first) std::erase(sending_, &peer);
  if (send == &peer.orphan_send) {
    peer.orphan = {};
    return;
  }
  if (error) send->error = error;
  scheduler_.complete(*send);
}

bool RingTransport::pump(Peer& peer) {
  bool moved = false;
  for (int turn = 0; peer.first && turn < cells_per_turn; ++turn) {
    const std::size_t before = peer.sent;
    if (!advance(peer, static_cast<Send*>(peer.first)->header)) return moved || peer.sent != before;
    moved = true;
    finish_front(peer, Error());
  }
  return moved;
}

void RingTransport::take_whole(Peer& peer, const RingMessage& message) {
  if (message.kind == RingKind::in_cell) {
    mailbox_.deliver(peer.rank, *message.header, message.data, nullptr, 0);
    return;
  }
  const bool may_keep = peer.in.may_keep(message.kind);
  const std::uint64_t small = message.kind == RingKind::small ? small_slot_bit : 0;
  const Mailbox::Taken taken = mailbox_.deliver(peer.rank, *message.header, message.data,
                                                may_keep ? this : nullptr, message.slot | small);
  if (taken == Mailbox::Taken::kept) return peer.in.keep(message.kind);
  peer.in.return_slot(message.kind, message.slot);
  wake(peer, RingSleep::for_room);
}

void RingTransport::take_piece(Peer& peer, const RingMessage& message) {
  if (message.kind == RingKind::first) {
    peer.incoming = &mailbox_.begin(peer.rank, *message.header);
    peer.arrived = 0;
    ++arriving_;
  }
  Mailbox::Incoming& incoming = *peer.incoming;
  const std::size_t length =
      std::min<std::size_t>(incoming.header.length - peer.arrived, shape_.large_bytes);
  if (incoming.data) copy_bytes(incoming.data + peer.arrived, message.data, length);
  peer.arrived += length;
  peer.in.return_slot(message.kind, message.slot);
  wake(peer, RingSleep::for_room);
  if (peer.arrived != incoming.header.length) return;
  --arriving_;
  peer.incoming = nullptr;
  mailbox_.finish(incoming);
}

bool RingTransport::take(Peer& peer) {
  int taken = 0;
  while (taken < cells_per_turn && peer.in.ready() && mailbox_.accepts(peer.rank)) {
    const RingMessage message = peer.in.front();
    if (message.kind < RingKind::first) {
      take_whole(peer, message);
    } else {
      take_piece(peer, message);
      taken += cells_per_turn / pieces_per_turn - 1;
    }
    ++taken;
    ++peer.taken;
    if (peer.in.pop()) wake(peer, RingSleep::for_room);
  }
  return taken != 0;
}

Front RingTransport::take_front(int rank, const Header& header, const FrontReader& reader) {
  if (!joined(rank)) [[unlikely]]
    return Front::hidden;
  Peer& peer = *peers_[static_cast<std::size_t>(rank)];
  if (!peer.in.ready()) return Front::none;
  const RingMessage message = peer.in.front();
  if (message.kind >= RingKind::first || *message.header != header) return Front::other;
  reader.read(reader.context, message.data);
  const bool has_slot = message.kind != RingKind::in_cell;
  if (has_slot) peer.in.return_slot(message.kind, message.slot);
  ++peer.taken;
  if (peer.in.pop() || has_slot) wake(peer, RingSleep::for_room);
  return Front::taken;
}

bool RingTransport::prefers_messages(int rank) {
  if (!joined(rank)) return false;
  Peer& peer = *peers_[static_cast<std::size_t>(rank)];
  const std::uint64_t took_ns = peer.out.look_at_probe();
  peer.in.write_probe();
  if (took_ns != 0) {
    peer.line_ns[peer.lines++ % peer.line_ns.size()] = static_cast<std::uint32_t>(took_ns);
  }
  const auto is_quick = [](std::uint32_t ns) { return ns < shared_line_ns; };
  if (std::ranges::any_of(peer.line_ns, is_quick)) return true;
  const SlotFilling& filling = peer.out.filling();
  return filling.is_past_caches() || !filling.is_known();
}

bool RingTransport::drain(int rank) {
  bool moved = false;
  while (take(*peers_[static_cast<std::size_t>(rank)])) moved = true;
  return moved;
}

bool RingTransport::progress() {
  bool moved = false;
  for (Peer* peer : attached_) {
    if (peer->in.ready() && take(*peer)) moved = true;
  }
  // From the back: a peer whose last send completes leaves the list.
  for (std::size_t i = sending_.size(); i-- > 0;) {
    if (i < sending_.size() && pump(*sending_[i])) moved = true;
  }
  if (!moved && (++idle_ & idle_turns_mask) == 0) moved = check_peers();
  return moved;
}

void RingTransport::release_slot(int rank, std::uint64_t slot) {
  Peer* peer = peers_[static_cast<std::size_t>(rank)].get();
  if (!peer) return;
  const RingKind kind = (slot & small_slot_bit) != 0 ? RingKind::small : RingKind::large;
  peer->in.return_kept(kind, static_cast<std::uint32_t>(slot));
  wake(*peer, RingSleep::for_room);
}

bool RingTransport::arm() {
  const std::uint32_t bits =
      RingSleep::for_messages | (sending_.empty() ? 0u : std::uint32_t{RingSleep::for_room});
  // An exchange and not a store: the checks that follow must not be reordered before it.
  own_sleep_->bits.exchange(bits, std::memory_order_seq_cst);
  const bool has_message = std::any_of(attached_.begin(), attached_.end(), [&](const Peer* peer) {
    return peer->in.ready() && mailbox_.accepts(peer->rank);
  });
  const bool has_room = std::any_of(sending_.begin(), sending_.end(), [](Peer* peer) {
    return peer->out.room(static_cast<Send*>(peer->first)->header.length);
  });
  if (!has_message && !has_room) return true;
  own_sleep_->bits.store(RingSleep::awake, std::memory_order_relaxed);
  return false;
}

void RingTransport::disarm() {
  own_sleep_->bits.store(RingSleep::awake, std::memory_order_relaxed);
  std::uint64_t rung = 0;
  [[maybe_unused]] const auto drained = read(own_doorbell_, &rung, sizeof rung);
  check_peers();
}

void RingTransport::end_sends(int rank, const Error& error) {
  Peer& peer = *peers_[static_cast<std::size_t>(rank)];
  if (!peer.ended) peer.ended = error;
  while (peer.first) finish_front(peer, error);
}

void RingTransport::quiesce(const CommState& comm, const Error& error) {
  for (Peer* peer : attached_) {
    Operation* const begun = peer->sent != 0 ? peer->first : nullptr;
    if (begun && begun->comm == &comm) {
      // The receiver has a part of it: the rest is sent from a copy.
      auto* send = static_cast<Send*>(begun);
      try {
        peer->orphan.assign(peer->rest, peer->rest + (send->header.length - peer->sent));
      } catch (const std::bad_alloc&) {  // the message is cut off, and none can follow it
        end_sends(peer->rank, error);
        continue;
      }
      peer->rest = peer->orphan.data();
      peer->orphan_send.header = send->header;
      peer->orphan_send.next = send->next;
      peer->first = &peer->orphan_send;
      if (peer->last == send) peer->last = &peer->orphan_send;
      send->next = nullptr;
      send->error = error;
      scheduler_.complete(*send);
    }
    Operation* previous = nullptr;
    for (Operation* send = peer->first; send;) {
      Operation* const next = send->next;
      if (send->comm == &comm) {
        (previous ? previous->next : peer->first) = next;
        if (peer->last == send) peer->last = previous;
        send->next = nullptr;
        send->error = error;
        scheduler_.complete(*send);
      } else {
        previous = send;
      }
      send = next;
    }
    if (!peer->first) std::erase(sending_, peer);
    if (peer->first && peer->sent == 0) peer->rest = static_cast<Send*>(peer->first)->data;
  }
}

std::uint64_t RingTransport::heard_from(int peer) const {
  return peers_[static_cast<std::size_t>(peer)]->taken;
}

void RingTransport::for_each_sending(const std::function<void(const Send&)>& see) const {
  for (const Peer* peer : sending_) {
    for (const Operation* send = peer->first; send; send = send->next) {
      if (send != &peer->orphan_send) see(static_cast<const Send&>(*send));
    }
  }
}

}  // namespace pith
