#include "transport/verbs/verbs_pair.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "core/clock.hpp"
#include "transport/peer_transport.hpp"

namespace pith {
namespace {

// A peer that says nothing for this long while something waits for it is asked by its device.
constexpr std::uint64_t silence_ns = 1'000'000'000;
// A lane that breaks this often while nothing passes over it is broken, whatever others do.
constexpr int breaks_max = 5;

// Null, or what is wrong with the frame.
const char* take_head(const VerbsSlot& came, VerbsHead& head) {
  if (came.bytes < sizeof head || came.bytes > verbs_frame_max) return "a frame without a head";
  head = came.head();
  return fault_of(head, came.payload_bytes());
}

}  // namespace

Error VerbsPair::make(std::span<const std::unique_ptr<VerbsRail>> rails, std::uint32_t window) {
  inbox_.expect(window + VerbsCredits::besides);
  inbox_.on_stop = [this] { stop_data(); };
  completions_.add(static_cast<std::uint32_t>(rank_), lanes_);
  if (Error error = control_.make(*rails[0], window)) return error;
  return lanes_.make(rails);
}

Error VerbsPair::meet(const VerbsAddress& theirs) {
  const VerbsAddress::Ends& ends = theirs.ends[0];
  if (Error error = control_.meet(theirs.rails[0], ends.control, theirs.window)) return error;
  return lanes_.meet(theirs.rails, ends.data);
}

Error VerbsPair::open() {
  if (Error error = control_.open()) return error;
  if (Error error = lanes_.open()) return error;
  live_ = true;
  heard_ns_ = monotonic_ns();
  return {};
}

void VerbsPair::close(const Error& error) {
  let_go();
  if (!error_) error_ = error;
  outbox_.fail(error);
  inbox_.abandon(error);
}

void VerbsPair::let_go() {
  live_ = false;
  lanes_.close();
  control_.close();
}

void VerbsPair::lose(std::string_view how) {
  if (error_) return;
  let_go();
  error_ = peer_lost(rank_, how);
  outbox_.fail(error_);
  untold_loss_ = true;
}

Error VerbsPair::take_loss() {
  if (!std::exchange(untold_loss_, false)) return {};
  inbox_.abandon(error_);
  control_.forget_frames();
  return error_;
}

bool VerbsPair::start(Send& send) {
  if (!live_) {
    if (!error_) lose("it has left");
    send.error = error_;
    return true;
  }
  return outbox_.start(send);
}

void VerbsPair::act(const ibv_wc& completion) {
  if (!live_) return;
  const VerbsTag tag = VerbsTag::unpack(completion.wr_id);
  const bool good = completion.status == IBV_WC_SUCCESS;
  if (good && (tag.work == VerbsWork::frame_came || tag.work == VerbsWork::data_came)) ++heard_;
  if (VerbsCompletions::is_data(completion)) return act_on_data(completion);
  if (!good) {
    let_go();
    inbox_.take_rest();
    if (closing_ || (inbox_.left() && !outbox_.awaited())) return;
    return lose(
        fmt::format("its connection has ended (verbs: {})", control_.status(completion.status)));
  }
  if (tag.work == VerbsWork::frame_sent) return control_.sent(tag.value);
  control_.slot(tag.value).bytes = completion.byte_len;
  act_on_frame(tag.value);
}

Front VerbsPair::take_front(const ibv_wc& completion, const Header& header,
                            const FrontReader& reader) {
  const VerbsTag tag = VerbsTag::unpack(completion.wr_id);
  const bool is_frame = tag.work == VerbsWork::frame_came && completion.status == IBV_WC_SUCCESS;
  if (!live_ || !is_frame) return Front::none;
  VerbsSlot& came = control_.slot(tag.value);
  came.bytes = completion.byte_len;
  VerbsHead head;
  if (take_head(came, head) || !is_ordered(head.kind)) return Front::none;
  const bool is_it = head.kind == VerbsKind::message && head.header == header;
  if (!is_it || !inbox_.is_between_messages()) return Front::other;
  ++heard_;
  control_.credits().credited(head.taken);
  reader.read(reader.context, came.payload());
  control_.take_back(tag.value);
  return Front::taken;
}

void VerbsPair::act_on_frame(std::uint32_t slot) {
  const VerbsSlot& came = control_.slot(slot);
  VerbsHead head;
  const char* fault = take_head(came, head);
  if (fault) return lose(fmt::format("it sent {}", fault));
  control_.credits().credited(head.taken);
  if (head.kind == VerbsKind::goodbye) {
    VerbsHead farewell;
    farewell.kind = VerbsKind::farewell;
    control_.say(farewell);
  }
  if (is_ordered(head.kind)) {
    fault = inbox_.arrive(slot);
  } else {
    fault = heed_now(head, came);
    if (live_) control_.take_back(slot);
  }
  if (fault) lose(fmt::format("it sent {}", fault));
}

const char* VerbsPair::heed_now(const VerbsHead& head, const VerbsSlot& came) {
  if (head.kind == VerbsKind::grant) {
    VerbsKeys keys;
    std::memcpy(&keys, came.payload(), sizeof keys);
    outbox_.granted(head, keys);
  } else if (head.kind == VerbsKind::portion) {
    return inbox_.portion(head, {came.payload(), came.payload_bytes()});
  } else if (head.kind == VerbsKind::dropped) {
    outbox_.dropped(head);
  } else if (head.kind == VerbsKind::withdrawn) {
    inbox_.withdrawn(head,
                     {Code::remote, fmt::format("rank {} has ended this call", rank_), rank_});
  } else if (head.kind == VerbsKind::restart) {
    return restart_came(head, came.payload());
  } else if (head.kind == VerbsKind::farewell) {
    said_farewell_ = true;
  }
  return nullptr;
}

// One that failed belongs to data connections that stop, or must: the control connection tells
// whether the peer is lost.
void VerbsPair::act_on_data(const ibv_wc& completion) {
  if (!live_ || !lanes_.is_current(completion)) return;
  const VerbsTag tag = VerbsTag::unpack(completion.wr_id);
  const bool sent = tag.work == VerbsWork::data_sent;
  const std::int64_t departed = sent ? lanes_.departed(completion) : -1;
  const std::size_t lane = VerbsDataValue::unpack(tag.value).lane;
  if (completion.status != IBV_WC_SUCCESS) {
    const bool is_cause = completion.status != IBV_WC_WR_FLUSH_ERR;
    if (!is_cause || ++breaks_[lane] <= breaks_max) return stop_data();
    return lose(fmt::format("its data connection by {} breaks (verbs: {})", lanes_.port(lane),
                            control_.status(completion.status)));
  }
  restarts_ = breaks_[lane] = 0;
  if (departed >= 0) return outbox_.departed(static_cast<std::uint32_t>(departed));
  if (sent) return;
  inbox_.noticed(ntohl(completion.imm_data));
  if (lanes_.is_open() && lanes_.renew_receive(lane) != 0) stop_data();
}

bool VerbsPair::progress() {
  bool moved = false;
  if (!live_) control_.forget_frames();
  if (live_) {
    const char* fault = nullptr;
    if (inbox_.can_pump()) moved |= inbox_.pump(fault);
    if (fault) lose(fmt::format("it sent {}", fault));
    if (control_.can_pump()) moved |= control_.pump();
    if (live_ && outbox_.can_pump()) moved |= outbox_.pump();
    if (live_ && restart_ == Restart::stopped) say_restart();
  }
  return check() || moved;
}

bool VerbsPair::can_progress() const {
  if (!live_) return untold_loss_ || (!error_ && mailbox_.awaited(rank_));
  return inbox_.can_pump() || control_.can_pump() || outbox_.can_pump() ||
         restart_ == Restart::stopped;
}

bool VerbsPair::busy() const {
  return live_ && (!outbox_.empty() || !control_.empty() || restart_ != Restart::none);
}

// True when anything changed.
bool VerbsPair::check() {
  if (!live_) {
    if (error_ || !mailbox_.awaited(rank_)) return false;
    lose("it has left");
    return true;
  }
  if (outbox_.broken() != 0) stop_data();
  if (const int broken = control_.broken(); broken != 0) {
    let_go();
    inbox_.take_rest();
    lose(fmt::format("no more frames can be sent ({})", std::strerror(broken)));
    return true;
  }
  if (!inbox_.left()) return false;
  // What it had sent is here; it waits for our farewell.
  if (outbox_.awaited() || mailbox_.awaited(rank_)) {
    lose("it has left");
  } else if (control_.last_sent()) {
    let_go();
  }
  return !live_;
}

void VerbsPair::quiesce(const CommState& comm, const Error& error) {
  if (live_ && outbox_.writes_for(comm)) stop_data();
  if (live_ && !outbox_.quiesce(comm, error)) lose("no memory to complete a message");
}

// A reliable connection notices a dead peer only while it sends.
void VerbsPair::look(std::uint64_t now_ns) {
  if (heard_before_ != heard_) {
    heard_before_ = heard_;
    heard_ns_ = now_ns;
  }
  const bool waits = mailbox_.awaited(rank_) || outbox_.awaited();
  if (live_ && waits && now_ns > heard_ns_ + silence_ns) control_.probe();
}

bool VerbsPair::is(Leaving step) const {
  if (!live_) return false;
  if (step == Leaving::sending) return !outbox_.empty();
  if (step == Leaving::saying_goodbye) return outbox_.empty() && !control_.last_sent();
  return !said_farewell_;
}

void VerbsPair::say_goodbye() {
  closing_ = true;
  if (!live_ || !outbox_.empty()) return;
  VerbsHead goodbye;
  goodbye.kind = VerbsKind::goodbye;
  control_.say(goodbye);
}

}  // namespace pith
