#include "transport/verbs/verbs_outbox.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

namespace pith {
namespace {

// Lanes share a message at multiples of this.
constexpr std::size_t share_grain = 4096;

}  // namespace

VerbsOutgoing& VerbsOutbox::take_outgoing(Send& send) {
  if (spare_.empty()) {
    all_.push_back(std::make_unique<VerbsOutgoing>());
    all_.back()->name = VerbsName::first(all_.size() - 1).value();
    for (auto* list : {&spare_, &active_, &queue_, &writing_, &halted_}) {
      list->reserve(all_.capacity());
    }
    spare_.push_back(all_.back().get());
  }
  VerbsOutgoing& outgoing = *spare_.back();
  spare_.pop_back();
  const std::uint32_t name = VerbsName(outgoing.name).next().value();
  outgoing = VerbsOutgoing();
  outgoing.name = name;
  outgoing.send = &send;
  outgoing.header = send.header;
  outgoing.data = send.data;
  active_.push_back(&outgoing);
  return outgoing;
}

VerbsOutgoing* VerbsOutbox::named(std::uint32_t name, State state) {
  const std::size_t place = VerbsName(name).place();
  if (place >= all_.size()) return nullptr;
  VerbsOutgoing& outgoing = *all_[place];
  return outgoing.name == name && outgoing.state == state ? &outgoing : nullptr;
}

bool VerbsOutbox::start(Send& send) {
  const std::size_t bytes = send.header.length;
  if (!send.direct && bytes < shared_.write_bytes && bytes <= verbs_payload_max && queue_.empty() &&
      control_.has_room()) {
    VerbsHead head;
    head.kind = VerbsKind::message;
    head.header = send.header;
    control_.send(head, {send.data, bytes});
    return true;
  }
  VerbsOutgoing& outgoing = take_outgoing(send);
  queue_.push_back(&outgoing);
  starting_ = &outgoing;
  started_done_ = false;
  pump();
  starting_ = nullptr;
  return started_done_;
}

bool VerbsOutbox::pump() {
  const bool framed = pump_frames();
  return pump_writes() || framed;
}

bool VerbsOutbox::can_pump() const {
  const auto has_writes = [this](const VerbsOutgoing* one) { return writes_left(*one); };
  return (!queue_.empty() && control_.has_room()) ||
         (lanes_.is_open() && std::ranges::any_of(writing_, has_writes));
}

bool VerbsOutbox::pump_frames() {
  bool moved = false;
  while (!queue_.empty() && control_.has_room()) {
    VerbsOutgoing& outgoing = *queue_.front();
    moved = true;
    const bool is_direct = outgoing.send && outgoing.send->direct;
    const bool is_long = is_direct || outgoing.header.length >= shared_.write_bytes;
    const bool is_new = outgoing.state == State::queued && !outgoing.begun;
    if (is_new && is_long && announce(outgoing)) {
      queue_.erase(queue_.begin());
      continue;
    }
    send_frame(outgoing);
    if (outgoing.posted < outgoing.header.length) continue;
    queue_.erase(queue_.begin());
    finish(outgoing);
  }
  return moved;
}

// False: its memory cannot be registered, so it goes in frames. Those of a device cannot: such a
// message has ended.
bool VerbsOutbox::announce(VerbsOutgoing& outgoing) {
  Scratch* const scratch = outgoing.send ? outgoing.send->direct : nullptr;
  outgoing.region = scratch ? shared_.memory->acquire(*scratch)
                            : shared_.memory->acquire(outgoing.data, outgoing.header.length, false);
  if (!outgoing.region && scratch) {
    end(outgoing, not_registered());
    recycle(outgoing);
    return true;
  }
  if (!outgoing.region) return false;
  outgoing.state = State::announced;
  VerbsHead head;
  head.kind = VerbsKind::announce;
  head.answer = outgoing.name;
  head.header = outgoing.header;
  control_.send(head, {});
  return true;
}

void VerbsOutbox::send_frame(VerbsOutgoing& outgoing) {
  const std::size_t bytes =
      std::min<std::size_t>(outgoing.header.length - outgoing.posted, verbs_payload_max);
  VerbsHead head;
  head.offset = static_cast<std::uint32_t>(outgoing.posted);
  if (outgoing.state == State::portions) {
    head.kind = VerbsKind::portion;
    head.transfer = outgoing.answer;
  } else {
    head.kind = bytes == outgoing.header.length ? VerbsKind::message : VerbsKind::piece;
    head.header = outgoing.header;
  }
  outgoing.begun = true;
  control_.send(head, {outgoing.data + outgoing.posted, bytes});
  outgoing.posted += bytes;
}

void VerbsOutbox::granted(const VerbsHead& head, const VerbsKeys& keys) {
  // The peer has granted it before it knew that the data connections have stopped.
  const bool stale = head.epoch != lanes_.epoch() || !lanes_.is_open();
  if (head.place != 0 && stale) return;
  VerbsOutgoing* outgoing = named(head.transfer, State::announced);
  const bool is_direct = outgoing && outgoing->send && outgoing->send->direct;
  if (is_direct && head.place == 0) {
    end(*outgoing, Error(Code::system, "the peer can register no memory for a device's message"));
    outgoing->state = State::withdrawn;
  }
  if (VerbsOutgoing* gone = named(head.transfer, State::withdrawn)) {
    VerbsHead word;
    word.kind = VerbsKind::withdrawn;
    word.transfer = head.answer;
    control_.say(word);
    return recycle(*gone);
  }
  if (!outgoing) return;
  outgoing->answer = head.answer;
  outgoing->place = head.place;
  outgoing->keys = keys;
  if (head.place == 0) {
    outgoing->state = State::portions;
    queue_.push_back(outgoing);
    return;
  }
  share_out(*outgoing);
  writing_.push_back(outgoing);
}

void VerbsOutbox::share_out(VerbsOutgoing& outgoing) {
  const std::size_t bytes = outgoing.header.length;
  const std::size_t count = lanes_.lanes_for(bytes);
  const std::size_t each = (bytes / count + share_grain - 1) / share_grain * share_grain;
  outgoing.state = State::writing;
  outgoing.shares_count = outgoing.shares_left = count;
  for (std::size_t s = 0; s < count; ++s) {
    outgoing.shares[s] = {std::min(bytes, s * each),
                          s + 1 == count ? bytes : std::min(bytes, (s + 1) * each), false};
  }
}

void VerbsOutbox::dropped(const VerbsHead& head) {
  for (const State state : {State::announced, State::withdrawn}) {
    if (VerbsOutgoing* outgoing = named(head.transfer, state)) return finish(*outgoing);
  }
}

bool VerbsOutbox::writes_left(const VerbsOutgoing& outgoing) const {
  const auto left = [](const VerbsOutgoing::Share& share) { return !share.told; };
  for (std::size_t s = 0; s < outgoing.shares_count; ++s) {
    if (left(outgoing.shares[s]) && lanes_.has_room((outgoing.answer + s) % lanes_.count(), 2)) {
      return true;
    }
  }
  return false;
}

bool VerbsOutbox::pump_writes() {
  if (!lanes_.is_open()) return false;
  bool moved = false;
  for (std::size_t i = 0; i < writing_.size() && broken_ == 0;) {
    VerbsOutgoing& outgoing = *writing_[i];
    bool all_told = true;
    for (std::size_t s = 0; s < outgoing.shares_count; ++s) {
      while (write_share(outgoing, s)) moved = true;
      all_told = all_told && outgoing.shares[s].told;
    }
    if (all_told) {
      writing_.erase(writing_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  return moved;
}

// Posts the next part of a share, with the notice after the last one; false: there is no room, or
// nothing is left.
bool VerbsOutbox::write_share(VerbsOutgoing& outgoing, std::size_t which) {
  VerbsOutgoing::Share& share = outgoing.shares[which];
  const std::size_t lane = (outgoing.answer + which) % lanes_.count();
  if (share.told || broken_ != 0 || !lanes_.has_room(lane, 2)) return false;
  const std::size_t bytes = std::min(share.end - share.at, lanes_.request_bytes());
  if (bytes != 0) {
    broken_ = lanes_.write(lane, {outgoing.data + share.at, bytes}, *outgoing.region,
                           outgoing.place + share.at, outgoing.keys.of_rail[lane]);
    share.at += bytes;
  }
  if (share.at == share.end && broken_ == 0) {
    broken_ = lanes_.notify(lane, outgoing.answer, outgoing.name);
    share.told = true;
  }
  return true;
}

void VerbsOutbox::departed(std::uint32_t name) {
  VerbsOutgoing* outgoing = named(name, State::writing);
  if (outgoing && --outgoing->shares_left == 0) finish(*outgoing);
}

void VerbsOutbox::halt() {
  broken_ = 0;
  writing_.clear();
  for (VerbsOutgoing* outgoing : active_) {
    if (outgoing->state != State::writing) continue;
    outgoing->state = State::announced;
    halted_.push_back(outgoing);
  }
}

void VerbsOutbox::landed_except(std::span<const std::uint32_t> wanted) {
  const std::vector<VerbsOutgoing*> halted = halted_;
  halted_.clear();
  for (VerbsOutgoing* outgoing : halted) {
    const bool again = std::ranges::find(wanted, outgoing->name) != wanted.end();
    const bool waits = outgoing->state == State::announced || outgoing->state == State::withdrawn;
    if (!again && waits) finish(*outgoing);
  }
}

void VerbsOutbox::finish(VerbsOutgoing& outgoing) {
  Send* send = std::exchange(outgoing.send, nullptr);
  const bool at_once = &outgoing == starting_;
  recycle(outgoing);
  if (!send) return;
  if (at_once) {
    started_done_ = true;
  } else {
    shared_.scheduler->complete(*send);
  }
}

void VerbsOutbox::release(VerbsOutgoing& outgoing) {
  if (outgoing.region) shared_.memory->release(*std::exchange(outgoing.region, nullptr));
}

void VerbsOutbox::recycle(VerbsOutgoing& outgoing) {
  release(outgoing);
  outgoing.state = State::queued;  // in which named() finds none
  outgoing.copy.reset();
  std::erase(active_, &outgoing);
  std::erase(halted_, &outgoing);
  spare_.push_back(&outgoing);
}

void VerbsOutbox::end(VerbsOutgoing& outgoing, const Error& error) {
  if (!outgoing.send) return;
  outgoing.send->error = error;
  shared_.scheduler->complete(*std::exchange(outgoing.send, nullptr));
}

bool VerbsOutbox::writes_for(const CommState& comm) const {
  return std::ranges::any_of(active_, [&](const VerbsOutgoing* one) {
    return one->state == State::writing && one->send && one->send->comm == &comm;
  });
}

bool VerbsOutbox::copy_rest(VerbsOutgoing& outgoing) {
  outgoing.copy.reset(new (std::nothrow) std::byte[outgoing.header.length]);
  if (!outgoing.copy) return false;
  std::memcpy(outgoing.copy.get() + outgoing.posted, outgoing.data + outgoing.posted,
              outgoing.header.length - outgoing.posted);
  outgoing.data = outgoing.copy.get();
  return true;
}

bool VerbsOutbox::quiesce(const CommState& comm, const Error& error) {
  bool whole = true;
  const std::vector<VerbsOutgoing*> active = active_;
  for (VerbsOutgoing* outgoing : active) {
    if (!outgoing->send || outgoing->send->comm != &comm) continue;
    const bool unsaid = outgoing->state == State::queued && !outgoing->begun;
    if (outgoing->state == State::announced || outgoing->state == State::writing) {
      if (outgoing->state == State::writing) halted_.push_back(outgoing);
      outgoing->state = State::withdrawn;
      std::erase(writing_, outgoing);
      release(*outgoing);
    } else if (!unsaid) {
      whole = copy_rest(*outgoing) && whole;
    }
    end(*outgoing, error);
    if (!unsaid) continue;
    std::erase(queue_, outgoing);
    recycle(*outgoing);
  }
  return whole;
}

void VerbsOutbox::fail(const Error& error) {
  queue_.clear();
  writing_.clear();
  halted_.clear();
  const std::vector<VerbsOutgoing*> active = active_;
  for (VerbsOutgoing* outgoing : active) {
    end(*outgoing, error);
    recycle(*outgoing);
  }
}

bool VerbsOutbox::empty() const {
  return std::ranges::all_of(
      active_, [](const VerbsOutgoing* one) { return one->state == State::withdrawn; });
}

bool VerbsOutbox::awaited() const {
  return std::ranges::any_of(active_, [](const VerbsOutgoing* one) { return one->send; });
}

void VerbsOutbox::for_each_sending(const std::function<void(const Send&)>& see) const {
  for (const VerbsOutgoing* outgoing : active_) {
    if (outgoing->send) see(*outgoing->send);
  }
}

}  // namespace pith
