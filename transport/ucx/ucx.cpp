#include "transport/ucx/ucx.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "core/clock.hpp"
#include "core/compute.hpp"
#include "transport/ucx/ucx_ranks.hpp"

namespace pith {
namespace {

// With RDMA, pieces from this size on are fetched by the receiver's hardware out of our slot.
constexpr std::size_t rdma_rendezvous_bytes = std::size_t{32} << 10;
// Calls of UCX's progress in one of ours, so that a burst is taken in one turn.
constexpr int rounds_per_turn = 8;
// UCX may use one connection for each direction, so that the peer's goodbye can arrive after the
// report that the other connection has ended.
constexpr std::uint64_t last_words_ns = 100'000'000;

}  // namespace

Expected<std::unique_ptr<UcxTransport>> UcxTransport::create(Scheduler& scheduler, Mailbox& mailbox,
                                                             int rank, int ranks,
                                                             const Secret& secret,
                                                             const UcxOptions& options) {
  Expected<std::unique_ptr<UcxWorker>> worker = UcxWorker::create(options.host);
  if (!worker) return worker.error();
  if (options.rdma_only && !(*worker)->rdma()) {
    return Error(Code::system, "UCX finds no RDMA device");
  }
  std::unique_ptr<UcxTransport> made = std::make_unique<UcxRanks>(
      scheduler, mailbox, rank, ranks, secret, options, std::move(*worker));
  return made;
}

UcxRanks::UcxRanks(Scheduler& scheduler, Mailbox& mailbox, int rank, int ranks,
                   const Secret& secret, const UcxOptions& options,
                   std::unique_ptr<UcxWorker> worker)
    : scheduler_(scheduler),
      mailbox_(mailbox),
      rank_(rank),
      ranks_(ranks),
      secret_(secret),
      by_rank_(static_cast<std::size_t>(ranks)),
      worker_(std::move(worker)) {
  const bool rdma = worker_->rdma();
  wire_.worker = worker_.get();
  wire_.scheduler = &scheduler_;
  wire_.slots = &slots_;
  wire_.from = static_cast<std::uint32_t>(rank);
  wire_.window_bytes = std::max<std::uint64_t>(options.window_bytes, 4 * ucx_cost(ucx_piece_max));
  wire_.rendezvous_bytes = rdma ? rdma_rendezvous_bytes : ucx_piece_max + 1;
  if (options.rendezvous_bytes != 0) wire_.rendezvous_bytes = options.rendezvous_bytes;
  direct_ = options.direct == UcxOptions::Direct::always ||
            (options.direct == UcxOptions::Direct::where_known && worker_->reaches_devices());
  worker_->on_message(&UcxRanks::message_came, this);
}

UcxRanks::~UcxRanks() {
  const Error gone(Code::invalid_usage, "this rank has closed its connections");
  for (Peer* peer : peers_) {
    peer->outbox.fail(gone);
    let_go(*peer);
    peer->inbox.abandon(gone);
  }
  worker_.reset();
}

bool UcxRanks::start(Send& send) {
  Peer* peer = by_rank_[static_cast<std::size_t>(send.peer)].get();
  if (!peer) {
    send.error = Error(Code::internal, fmt::format("no connection to rank {}", send.peer));
    return true;
  }
  if (!peer->live) {
    if (!peer->error) lose(*peer, "it has left");
    send.error = peer->error;
    return true;
  }
  if (!peer->endpoint) {
    send.error = peer->ended.empty() ? peer_left(send.peer) : peer_lost(send.peer, peer->ended);
    return true;
  }
  return peer->outbox.start(send);
}

// Shorter ones are faster through the host: their data come with the header.
std::size_t UcxRanks::direct_bytes(Compute& compute) const {
  if (!direct_ || compute.network_memory() == 0) return no_bytes;
  return std::min(wire_.rendezvous_bytes, rdma_rendezvous_bytes);
}

// Null where the message does not prove that it is from a rank of this job.
UcxRanks::Peer* UcxRanks::sender_of(const UcxHead& head) {
  if (head.version != wire_version || head.from >= by_rank_.size()) return nullptr;
  Peer* peer = by_rank_[head.from].get();
  return peer && peer->token == head.token ? peer : nullptr;
}

ucs_status_t UcxRanks::message_came(void* self, const void* head, std::size_t head_bytes,
                                    void* data, std::size_t bytes,
                                    const ucp_am_recv_param_t* param) {
  auto& ranks = *static_cast<UcxRanks*>(self);
  UcxArrival arrival;
  Peer* peer = nullptr;
  if (head_bytes == sizeof arrival.head) {
    std::memcpy(&arrival.head, head, sizeof arrival.head);
    peer = ranks.sender_of(arrival.head);
  }
  if (!peer) {
    ++ranks.unauthenticated_;
    return UCS_OK;
  }
  if (!peer->live) return UCS_OK;
  ++peer->heard;
  if (peer->broken != UCS_OK) peer->broken_ns = monotonic_ns();
  if (const char* fault = fault_of(arrival.head, bytes)) {
    ranks.lose(*peer, fmt::format("it sent {}", fault));
    return UCS_OK;
  }
  peer->outbox.credited(arrival.head.taken);
  arrival.rendezvous = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  arrival.may_keep = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA) != 0;
  arrival.data = arrival.rendezvous ? nullptr : static_cast<const std::byte*>(data);
  arrival.bytes = bytes;
  arrival.message = data;
  try {
    return ranks.take(*peer, arrival);
  } catch (const std::bad_alloc&) {  // must not pass through UCX's frames
    ranks.no_memory_ = true;
    return UCS_OK;
  }
}

ucs_status_t UcxRanks::take(Peer& peer, const UcxArrival& arrival) {
  heed(peer, arrival.head.kind);
  if (!is_sequenced(arrival.head.kind)) return UCS_OK;
  const UcxInbox::Outcome outcome = peer.inbox.arrive(arrival);
  if (outcome.fault) {
    lose(peer, fmt::format("it sent {}", outcome.fault));
  } else if (peer.live) {
    peer.outbox.took(peer.inbox.take_cost());
  }
  return outcome.kept ? UCS_INPROGRESS : UCS_OK;
}

// Handles what takes effect at once, even while earlier messages wait.
void UcxRanks::heed(Peer& peer, UcxKind kind) {
  switch (kind) {
    case UcxKind::hello:
      peer.said_hello = true;
      return;
    case UcxKind::ready:
      peer.is_ready = true;
      return;
    case UcxKind::goodbye:
      peer.said_goodbye = true;
      return peer.outbox.say(UcxKind::farewell);
    case UcxKind::farewell:
      peer.said_farewell = true;
      return;
    case UcxKind::piece:
    case UcxKind::direct:
    case UcxKind::credit:
      return;
  }
}

// progress() handles it: UCX is in the middle of a call here.
void UcxRanks::endpoint_broke(void* arg, ucp_ep_h, ucs_status_t status) {
  auto& peer = *static_cast<Peer*>(arg);
  if (peer.broken != UCS_OK) return;
  peer.broken = status;
  peer.broken_ns = monotonic_ns();
}

void UcxRanks::fetch_done(void* request, ucs_status_t status, std::size_t, void* arg) {
  auto& held = *static_cast<UcxInbox::Held*>(arg);
  ucx_library().request_free(request);
  UcxInbox::fetched(held, status == UCS_OK);
}

bool UcxRanks::fetch(Peer& peer) {
  bool moved = false;
  void* message = nullptr;
  while (UcxInbox::Held* held = peer.inbox.next_fetch(message)) {
    std::byte* into = held->slot->data.get();
    const ucs_status_ptr_t request =
        worker_->fetch(message, into, held->bytes, &UcxRanks::fetch_done, held);
    moved = true;
    if (UCS_PTR_IS_PTR(request)) continue;
    UcxInbox::fetched(*held, request == nullptr);
  }
  return moved;
}

void UcxRanks::direct_done(void* request, ucs_status_t status, std::size_t, void* arg) {
  ucx_library().request_free(request);
  UcxInbox::landed(*static_cast<UcxInbox::Held*>(arg), status == UCS_OK);
}

// Fetches into the receiver's memory, which may be a device's or the mailbox's.
bool UcxRanks::fetch_wanted(Peer& peer) {
  bool moved = false;
  void* message = nullptr;
  while (UcxInbox::Held* held = peer.inbox.next_wanted(message)) {
    const Mailbox::Incoming& incoming = *held->announced;
    const ucs_status_ptr_t request =
        incoming.memory != 0
            ? worker_->fetch_direct(message, {incoming.data, held->bytes}, incoming.memory,
                                    &direct_done, held)
            : worker_->fetch(message, incoming.data, held->bytes, &direct_done, held);
    moved = true;
    if (!UCS_PTR_IS_PTR(request)) UcxInbox::landed(*held, request == nullptr);
  }
  return moved;
}

bool UcxRanks::pump(Peer& peer) {
  bool moved = false;
  if (peer.inbox.wants_fetch()) {
    moved |= fetch(peer);
    moved |= fetch_wanted(peer);
  }
  const char* fault = nullptr;
  if (peer.inbox.can_pump()) moved |= peer.inbox.pump(fault);
  if (fault) {
    lose(peer, fmt::format("it sent {}", fault));
    return true;
  }
  if (const std::uint64_t cost = peer.inbox.take_cost()) peer.outbox.took(cost);
  if (peer.outbox.can_post()) moved |= peer.outbox.pump();
  return moved;
}

// Checks whether the peer is still there; true when anything changed.
bool UcxRanks::check_peer(Peer& peer) {
  if (peer.broken != UCS_OK && peer.live) {
    // After a goodbye it has closed in order; earlier messages may still wait here.
    if (peer.said_goodbye) {
      peer.outbox.peer_left();
      let_go(peer);
    } else if (peer.ended.empty() && monotonic_ns() - peer.broken_ns > last_words_ns) {
      end(peer);
      return true;
    }
  }
  if (is_missed(peer)) {
    lose(peer, peer.ended);
    return true;
  }
  if (peer.live && peer.inbox.left()) {
    leave_in_order(peer);
    return true;
  }
  if (!peer.live && !peer.error && mailbox_.awaited(peer.rank)) {
    lose(peer, "it has left");
    return true;
  }
  return false;
}

// Its process has ended. What it had sent is here, but for what was to be fetched; it is lost once
// a receive waits for more, or something is sent to it.
void UcxRanks::end(Peer& peer) {
  peer.ended =
      fmt::format("its connection has ended (UCX: {})", worker_->ucx().status_string(peer.broken));
  if (peer.inbox.wants_fetch()) return lose(peer, peer.ended);
  peer.outbox.fail(peer_lost(peer.rank, peer.ended));
  peer.outbox.peer_left();
  let_go(peer);
}

bool UcxRanks::is_missed(const Peer& peer) const {
  return peer.live && !peer.ended.empty() && !peer.inbox.can_pump() && mailbox_.awaited(peer.rank);
}

void UcxRanks::leave_in_order(Peer& peer) {
  peer.outbox.peer_left();
  if (!peer.inbox.empty() || peer.outbox.awaited()) return lose(peer, "it has left");
  peer.live = false;
}

void UcxRanks::lose(Peer& peer, std::string_view how) {
  if (peer.error) return;
  peer.error = peer_lost(peer.rank, how);
  peer.live = false;
  peer.outbox.fail(peer.error);
  unreported_.push_back(&peer);
}

// Closes the endpoint, which ends what UCX still has of ours.
void UcxRanks::let_go(Peer& peer) {
  if (!peer.endpoint) return;
  peer.outbox.fail(peer_left(peer.rank));
  worker_->close(std::exchange(peer.endpoint, nullptr));
}

// Last in progress(): the owner may call back into this transport.
void UcxRanks::report_lost() {
  while (!unreported_.empty()) {
    Peer& peer = *unreported_.back();
    unreported_.pop_back();
    peer.inbox.abandon(peer.error);
    let_go(peer);
    if (on_peer_lost) on_peer_lost(peer.rank, peer.error);
  }
}

bool UcxRanks::progress() {
  bool moved = false;
  for (int round = 0; round < rounds_per_turn && worker_->progress(); ++round) moved = true;
  if (std::exchange(no_memory_, false)) throw std::bad_alloc();
  for (Peer* peer : peers_) {
    if (peer->live) moved |= pump(*peer);
    moved |= check_peer(*peer);
  }
  if (unreported_.empty()) return moved;
  report_lost();
  return true;
}

bool UcxRanks::busy() const {
  return mailbox_.waiting() != 0 || std::any_of(peers_.begin(), peers_.end(), [](const Peer* peer) {
           return !peer->outbox.empty() || peer->inbox.wants_fetch();
         });
}

bool UcxRanks::arm() {
  if (!unreported_.empty()) return false;
  for (const Peer* peer : peers_) {
    if (peer->live &&
        (peer->inbox.can_pump() || peer->inbox.wants_fetch() || peer->outbox.can_post())) {
      return false;
    }
    if (!peer->live && !peer->error && mailbox_.awaited(peer->rank)) return false;
    if (is_missed(*peer)) return false;
  }
  return worker_->arm();
}

void UcxRanks::quiesce(const CommState& comm, const Error& error) {
  for (Peer* peer : peers_) peer->outbox.quiesce(comm, error);
}

void UcxRanks::for_each_sending(const std::function<void(const Send&)>& see) const {
  for (const Peer* peer : peers_) peer->outbox.for_each_sending(see);
}

}  // namespace pith
