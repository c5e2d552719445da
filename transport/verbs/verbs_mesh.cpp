// How VerbsTransport starts and ends: ends for all ranks, addresses, goodbye and its answer.
#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

#include "core/clock.hpp"
#include "core/descriptor_limit.hpp"
#include "transport/verbs/verbs_ranks.hpp"

namespace pith {
namespace {

constexpr std::uint64_t ms = 1'000'000;
// Time for peers that are not driving their end at the moment.
constexpr std::uint64_t farewell_ns = 100 * ms;
constexpr std::uint64_t nap_ns = 5 * ms;
// Of all peers together, so that a rank of many does not lock more memory than it uses.
constexpr std::uint32_t frames_of_all = 2048;
constexpr std::uint32_t frames_least = 8;
constexpr std::uint32_t frames_most = 32;

}  // namespace

std::uint32_t VerbsRanks::window_for(int ranks) const {
  return std::clamp(frames_of_all / static_cast<std::uint32_t>(ranks), frames_least, frames_most);
}

Error VerbsRanks::make_ends() {
  const auto peers = static_cast<std::size_t>(ranks_ - 1);
  for (std::size_t r = 0; r < rails_.size(); ++r) {
    const std::size_t control = r == 0 ? VerbsControl::completions(window_) : 0;
    const std::size_t entries =
        std::max<std::size_t>(peers * (control + VerbsLanes::completions()), 1);
    if (Error error = rails_[r]->make_queue(entries)) return error;
  }
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank == rank_) continue;
    auto peer = std::make_unique<Peer>(*this, rank);
    if (Error error = peer->control.make(*rails_[0], window_)) return error;
    if (Error error = peer->lanes.make(rails_)) return error;
    by_rank_[static_cast<std::size_t>(rank)] = std::move(peer);
  }
  return {};
}

Expected<std::string> VerbsRanks::listen() {
  if (Error error = make_ends()) return error;
  VerbsAddress address;
  address.window = window_;
  for (const auto& rail : rails_) address.rails.push_back(rail->place());
  for (const auto& peer : by_rank_) {
    VerbsAddress::Ends& ends = address.ends.emplace_back();
    if (!peer) continue;
    ends.control = peer->control.end();
    ends.data = peer->lanes.ends();
  }
  return address.pack();
}

// Both ends can receive before either sends: all ranks have attached before any connects.
Error VerbsRanks::attach(std::span<const std::string> addresses, std::vector<bool>& attached,
                         const Patience&) {
  attached.assign(addresses.size(), false);
  for (std::size_t r = 0; r < addresses.size(); ++r) {
    Peer* peer = by_rank_[r].get();
    if (!peer || addresses[r].empty()) continue;
    const Expected<VerbsAddress> theirs = VerbsAddress::unpack(addresses[r], rank_);
    if (!theirs) continue;
    const VerbsAddress::Ends& ends = theirs->ends[0];
    const bool met = !peer->control.meet(theirs->rails[0], ends.control, theirs->window) &&
                     !peer->lanes.meet(theirs->rails, ends.data);
    attached[r] = met;
  }
  return {};
}

Error VerbsRanks::watch(int descriptor) {
  epoll_event event{};
  event.events = EPOLLIN;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) == 0) return {};
  return system_error("watch an RDMA device", errno);
}

Error VerbsRanks::connect(std::span<const std::string>, std::span<const std::uint8_t> use,
                          const Patience&) {
  epoll_ = Descriptor(open_with_room([] { return ::epoll_create1(EPOLL_CLOEXEC); }));
  if (!epoll_) return system_error("create an epoll descriptor", errno);
  for (const auto& rail : rails_) {
    if (Error error = watch(rail->descriptor())) return error;
    if (Error error = watch(rail->event_descriptor())) return error;
  }
  for (std::size_t r = 0; r < by_rank_.size(); ++r) {
    if (use[r] == 0) by_rank_[r].reset();
    Peer* peer = by_rank_[r].get();
    if (!peer) continue;
    if (Error error = peer->control.open()) return error;
    if (Error error = peer->lanes.open()) return error;
    peer->inbox.expect(window_);
    peer->inbox.on_stop = [this, peer] { stop_data(*peer); };
    peer->live = true;
    peer->heard_ns = monotonic_ns();
    peers_.push_back(peer);
  }
  unreported_.reserve(peers_.size());
  return {};
}

// Makes progress, or sleeps a little.
void VerbsRanks::turn(std::uint64_t deadline_ns) {
  if (progress() || !arm()) return;
  wait_for(descriptor(), POLLIN, std::min(deadline_ns, monotonic_ns() + nap_ns));
}

void VerbsRanks::close(std::uint64_t deadline_ns) {
  const auto any = [this](auto&& is) { return std::any_of(peers_.begin(), peers_.end(), is); };
  const auto sends = [](const Peer* peer) { return peer->live && !peer->outbox.empty(); };
  while (any(sends) && monotonic_ns() < deadline_ns) turn(deadline_ns);
  closing_ = true;
  for (Peer* peer : peers_) {
    if (!peer->live || !peer->outbox.empty()) continue;
    VerbsHead goodbye;
    goodbye.kind = VerbsKind::goodbye;
    peer->control.say(goodbye);
  }
  const auto says = [](const Peer* peer) {
    return peer->live && peer->outbox.empty() && !peer->control.last_sent();
  };
  while (any(says) && monotonic_ns() < deadline_ns) turn(deadline_ns);
  const std::uint64_t last = std::min(deadline_ns, monotonic_ns() + farewell_ns);
  const auto waits = [](const Peer* peer) { return peer->live && !peer->said_farewell; };
  while (any(waits) && monotonic_ns() < last) turn(last);
  const Error closed(Code::invalid_usage, "this rank has closed its connections");
  for (Peer* peer : peers_) {
    let_go(*peer);
    if (!peer->error) peer->error = closed;
    peer->outbox.fail(closed);
    peer->inbox.abandon(closed);
  }
}

}  // namespace pith
