#include "transport/verbs/verbs.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/clock.hpp"
#include "core/log.hpp"
#include "transport/verbs/verbs_ranks.hpp"

namespace pith {
namespace {

constexpr std::size_t completions_at_once = 32;
// A peer that says nothing for this long while something waits for it is asked by its device.
constexpr std::uint64_t silence_ns = 1'000'000'000;

}  // namespace

Expected<std::unique_ptr<VerbsTransport>> VerbsTransport::create(
    const VerbsLibrary& library, const VerbsWish& wish, Scheduler& scheduler, Mailbox& mailbox,
    int rank, int ranks, const VerbsOptions& options) {
  auto rails = VerbsRail::open_all(library, wish);
  if (!rails) return rails.error();
  if (rails->size() > verbs_rails_max) rails->resize(verbs_rails_max);
  VerbsOptions possible = options;
  if (options.watch && options.cache_bytes != 0 && MemoryEvents::begin()) possible.cache_bytes = 0;
  std::unique_ptr<VerbsTransport> made = std::make_unique<VerbsRanks>(
      library, std::move(*rails), scheduler, mailbox, rank, ranks, possible);
  return made;
}

VerbsRanks::VerbsRanks(const VerbsLibrary& library, Rails rails, Scheduler& scheduler,
                       Mailbox& mailbox, int rank, int ranks, const VerbsOptions& options)
    : library_(library),
      rails_(std::move(rails)),
      scheduler_(scheduler),
      mailbox_(mailbox),
      rank_(rank),
      ranks_(ranks),
      window_(options.window != 0 ? options.window : window_for(ranks)),
      slots_(*rails_[0]),
      memory_(library, rails_, options.cache_bytes),
      shared_{&scheduler_, &memory_, options.write_bytes},
      by_rank_(static_cast<std::size_t>(ranks)) {}

VerbsRanks::~VerbsRanks() {
  const Error gone(Code::invalid_usage, "this rank has closed its connections");
  for (Peer* peer : peers_) {
    let_go(*peer);
    peer->outbox.fail(gone);
    peer->inbox.abandon(gone);
  }
}

bool VerbsRanks::start(Send& send) {
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
  return peer->outbox.start(send);
}

VerbsRanks::Peer* VerbsRanks::peer_of(const ibv_wc& completion) {
  return by_rank_[VerbsTag::unpack(completion.wr_id).peer].get();
}

bool VerbsRanks::is_data(const ibv_wc& completion) {
  const VerbsWork work = VerbsTag::unpack(completion.wr_id).work;
  return work == VerbsWork::data_sent || work == VerbsWork::data_came;
}

void VerbsRanks::count(const ibv_wc& completion) {
  if (is_data(completion)) {
    if (Peer* peer = peer_of(completion)) peer->lanes.count(completion);
  }
}

// Takes the devices' completions; true if there were any.
bool VerbsRanks::gather() {
  std::array<ibv_wc, completions_at_once> some;
  const std::size_t before = completions_.size();
  completions_.reserve(before + rails_.size() * some.size());
  for (const auto& rail : rails_) {
    const Expected<std::size_t> count_of = rail->poll(some);
    if (!count_of) {
      for (Peer* peer : peers_) {
        if (peer->live) lose(*peer, count_of.error().message());
      }
      return true;
    }
    for (std::size_t i = 0; i < *count_of; ++i) {
      count(some[i]);
      completions_.push_back(some[i]);
    }
  }
  return completions_.size() != before;
}

// Where there is no memory for a message, its frame is held: see VerbsInbox.
bool VerbsRanks::act_on_all() {
  const bool any = acted_ != completions_.size();
  while (acted_ != completions_.size()) {
    const ibv_wc completion = completions_[acted_++];
    act(completion);
  }
  completions_.clear();
  acted_ = 0;
  return any;
}

void VerbsRanks::act(const ibv_wc& completion) {
  const VerbsTag tag = VerbsTag::unpack(completion.wr_id);
  if (tag.work == VerbsWork::none || !peer_of(completion) || !peer_of(completion)->live) return;
  Peer& peer = *peer_of(completion);
  const bool good = completion.status == IBV_WC_SUCCESS;
  if (is_data(completion)) return act_on_data(peer, completion);
  if (!good) {
    if (closing_ || (peer.inbox.left() && !peer.outbox.awaited())) return let_go(peer);
    return lose(peer, fmt::format("its connection has ended (verbs: {})",
                                  library_.wc_status_str(completion.status)));
  }
  if (tag.work == VerbsWork::frame_sent) return peer.control.sent(tag.value);
  peer.control.came(tag.value, completion.byte_len);
  act_on_frame(peer, tag.value);
}

void VerbsRanks::act_on_frame(Peer& peer, std::uint32_t slot) {
  const VerbsSlot& came = peer.control.slot(slot);
  ++peer.heard;
  peer.heard_ns = monotonic_ns();
  const bool whole = came.bytes >= sizeof(VerbsHead) && came.bytes <= verbs_frame_max;
  const VerbsHead head = whole ? came.head() : VerbsHead();
  const char* fault = whole ? fault_of(head, came.payload_bytes()) : "a frame without a head";
  if (!fault) {
    peer.control.credited(head.taken);
    fault = heed(peer, slot, head);
  }
  if (fault) lose(peer, fmt::format("it sent {}", fault));
}

const char* VerbsRanks::heed(Peer& peer, std::uint32_t slot, const VerbsHead& head) {
  if (is_ordered(head.kind)) {
    if (head.kind == VerbsKind::goodbye) {
      VerbsHead farewell;
      farewell.kind = VerbsKind::farewell;
      peer.control.say(farewell);
    }
    return peer.inbox.arrive(slot);
  }
  const VerbsSlot& came = peer.control.slot(slot);
  const char* fault = nullptr;
  if (head.kind == VerbsKind::grant) {
    VerbsKeys keys;
    std::memcpy(&keys, came.payload(), sizeof keys);
    peer.outbox.granted(head, keys);
  } else if (head.kind == VerbsKind::portion) {
    fault = peer.inbox.portion(head, {came.payload(), came.payload_bytes()});
  } else if (head.kind == VerbsKind::dropped) {
    peer.outbox.dropped(head);
  } else if (head.kind == VerbsKind::withdrawn) {
    peer.inbox.withdrawn(
        head,
        Error(Code::remote, fmt::format("rank {} has ended this call", peer.rank), peer.rank));
  } else if (head.kind == VerbsKind::restart) {
    fault = restart_came(peer, head, came.payload());
  } else if (head.kind == VerbsKind::farewell) {
    peer.said_farewell = true;
  }
  if (peer.live) peer.control.take_back(slot);
  return fault;
}

// One that failed belongs to data connections that stop, or must: the control connection tells
// whether the peer is lost.
void VerbsRanks::act_on_data(Peer& peer, const ibv_wc& completion) {
  if (!peer.lanes.is_current(completion)) return;
  const bool sent = VerbsTag::unpack(completion.wr_id).work == VerbsWork::data_sent;
  const std::int64_t departed = sent ? peer.lanes.departed(completion) : -1;
  if (completion.status != IBV_WC_SUCCESS) {
    if (peer.lanes.is_open()) stop_data(peer);
    return;
  }
  peer.restarts = 0;
  ++peer.heard;
  peer.heard_ns = monotonic_ns();
  if (departed >= 0) return peer.outbox.departed(static_cast<std::uint32_t>(departed));
  if (sent) return;
  const VerbsDataValue value = VerbsDataValue::unpack(VerbsTag::unpack(completion.wr_id).value);
  peer.inbox.noticed(ntohl(completion.imm_data));
  if (peer.lanes.is_open() && peer.lanes.renew_receive(value.lane) != 0) stop_data(peer);
}

bool VerbsRanks::pump(Peer& peer) {
  const char* fault = nullptr;
  bool moved = peer.inbox.can_pump() && peer.inbox.pump(fault);
  if (fault) {
    lose(peer, fmt::format("it sent {}", fault));
    return true;
  }
  if (peer.control.can_pump()) moved |= peer.control.pump();
  if (peer.outbox.can_pump()) moved |= peer.outbox.pump();
  if (peer.restart == Restart::stopped) say_restart(peer);
  return moved;
}

// Checks whether the peer is still there; true when anything changed.
bool VerbsRanks::check_peer(Peer& peer) {
  if (!peer.live) {
    if (peer.error || !mailbox_.awaited(peer.rank)) return false;
    lose(peer, "it has left");
    return true;
  }
  if (peer.outbox.broken() != 0 && peer.lanes.is_open()) stop_data(peer);
  if (const int broken = peer.control.broken(); broken != 0) {
    lose(peer, fmt::format("the device refuses work ({})", std::strerror(broken)));
    return true;
  }
  return peer.inbox.left() && leave_in_order(peer);
}

// What it had sent is here; it waits for our farewell.
bool VerbsRanks::leave_in_order(Peer& peer) {
  if (peer.outbox.awaited() || !peer.inbox.idle()) {
    lose(peer, "it has left");
    return true;
  }
  if (!peer.control.last_sent()) return false;
  let_go(peer);
  return true;
}

void VerbsRanks::lose(Peer& peer, std::string_view how) {
  if (peer.error) return;
  peer.error = peer_lost(peer.rank, how);
  // The hardware must let go of callers' memory before their operations end.
  let_go(peer);
  peer.outbox.fail(peer.error);
  unreported_.push_back(&peer);
}

void VerbsRanks::let_go(Peer& peer) {
  peer.live = false;
  peer.lanes.close();
  peer.control.close();
}

// Last in progress(): the owner may call back into this transport.
void VerbsRanks::report_lost() {
  while (!unreported_.empty()) {
    Peer& peer = *unreported_.back();
    unreported_.pop_back();
    peer.inbox.abandon(peer.error);
    if (on_peer_lost) on_peer_lost(peer.rank, peer.error);
  }
}

bool VerbsRanks::progress() {
  if (std::exchange(armed_, false)) {
    for (const auto& rail : rails_) rail->disarm();
    heed_events();
  }
  bool moved = gather();
  moved |= act_on_all();
  for (Peer* peer : peers_) {
    if (peer->live) moved |= pump(*peer);
    moved |= check_peer(*peer);
  }
  if (unreported_.empty()) return moved;
  report_lost();
  return true;
}

bool VerbsRanks::busy() const {
  return mailbox_.waiting() != 0 || std::any_of(peers_.begin(), peers_.end(), [](const Peer* peer) {
           return peer->live && (!peer->outbox.empty() || !peer->control.empty() ||
                                 peer->restart != Restart::none);
         });
}

bool VerbsRanks::arm() {
  if (!unreported_.empty() || acted_ != completions_.size()) return false;
  for (const Peer* peer : peers_) {
    if (peer->live && (peer->inbox.can_pump() || peer->control.can_pump() ||
                       peer->outbox.can_pump() || peer->restart == Restart::stopped)) {
      return false;
    }
    if (!peer->live && !peer->error && mailbox_.awaited(peer->rank)) return false;
  }
  armed_ = true;
  for (const auto& rail : rails_) {
    if (rail->arm()) return false;
  }
  // What came before that has sent no wake-up.
  return !gather();
}

void VerbsRanks::heed_events() {
  for (const auto& rail : rails_) {
    const std::string told = rail->take_event();
    if (!told.empty()) log(LogLevel::warn, fmt::format("rank {}: {}", rank_, told));
  }
}

// A reliable connection notices a dead peer only while it sends.
void VerbsRanks::look_at_links(std::uint64_t now_ns) {
  heed_events();
  for (Peer* peer : peers_) {
    const bool waits = mailbox_.awaited(peer->rank) || peer->outbox.awaited();
    if (peer->live && waits && now_ns > peer->heard_ns + silence_ns) peer->control.probe();
  }
}

void VerbsRanks::quiesce(const CommState& comm, const Error& error) {
  for (Peer* peer : peers_) {
    if (peer->live && peer->outbox.writes_for(comm)) stop_data(*peer);
    if (peer->live) peer->outbox.quiesce(comm, error);
  }
}

void VerbsRanks::for_each_sending(const std::function<void(const Send&)>& see) const {
  for (const Peer* peer : peers_) peer->outbox.for_each_sending(see);
}

VerbsSupport verbs_support(const VerbsWish& wish) {
  VerbsSupport support;
  const auto rails = VerbsRail::open_all(verbs_library(), wish);
  support.why_not = rails.error();
  if (support.why_not) return support;
  for (const auto& rail : *rails) support.ports.push_back(rail->name());
  support.why_copies = MemoryEvents::begin();
  return support;
}

}  // namespace pith
