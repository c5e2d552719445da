// How VerbsTransport starts and ends: ends for all ranks, addresses, goodbye and its answer.
#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

#include "core/clock.hpp"
#include "core/descriptor_limit.hpp"
#include "core/log.hpp"
#include "transport/verbs/verbs_ranks.hpp"

namespace pith {
namespace {

constexpr std::uint64_t ms = 1'000'000;
// Time for peers that are not driving their end at the moment.
constexpr std::uint64_t farewell_ns = 100 * ms;
constexpr std::uint64_t nap_ns = 5 * ms;

Error watch(const Descriptor& epoll, int descriptor) {
  epoll_event event{};
  event.events = EPOLLIN;
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, descriptor, &event) == 0) return {};
  return system_error("watch an RDMA device", errno);
}

}  // namespace

Error VerbsRanks::make_pairs() {
  const auto peers = static_cast<std::size_t>(ranks_ - 1);
  std::size_t all = 0;
  for (std::size_t r = 0; r < rails_.size(); ++r) {
    const std::size_t control = r == 0 ? VerbsControl::completions(window_) : 0;
    const std::size_t entries = peers * (control + VerbsLanes::completions());
    if (Error error = rails_[r]->make_queue(std::max<std::size_t>(entries, 1))) return error;
    all += entries;
  }
  completions_.reserve(2 * all);
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank == rank_) continue;
    auto pair = std::make_unique<VerbsPair>(mailbox_, slots_, shared_, completions_, rank);
    if (Error error = pair->make(rails_, window_)) return error;
    by_rank_[static_cast<std::size_t>(rank)] = std::move(pair);
  }
  return {};
}

Expected<std::string> VerbsRanks::listen() {
  if (Error error = make_pairs()) return error;
  VerbsAddress address;
  address.window = window_;
  for (const auto& rail : rails_) {
    address.rails.push_back(rail->place());
    log(LogLevel::debug, fmt::format("rank {}: verbs uses {}, GID {}, MTU {}", rank_, rail->name(),
                                     rail->gid_index(), 128 << rail->place().mtu));
  }
  for (const auto& pair : by_rank_) {
    address.ends.push_back(pair ? pair->ends() : VerbsAddress::Ends());
  }
  return address.pack();
}

// Both ends can receive before either sends: all ranks have attached before any connects.
Error VerbsRanks::attach(std::span<const std::string> addresses, std::vector<bool>& attached,
                         const Patience&) {
  attached.assign(addresses.size(), false);
  for (std::size_t r = 0; r < addresses.size(); ++r) {
    VerbsPair* pair = by_rank_[r].get();
    if (!pair || addresses[r].empty()) continue;
    const Expected<VerbsAddress> theirs = VerbsAddress::unpack(addresses[r], rank_);
    const Error why_not = theirs ? pair->meet(*theirs) : theirs.error();
    attached[r] = !why_not;
    if (!why_not) continue;
    log(LogLevel::warn,
        fmt::format("rank {} cannot reach rank {} by verbs: {}", rank_, r, why_not.message()));
  }
  return {};
}

Error VerbsRanks::connect(std::span<const std::string>, std::span<const std::uint8_t> use,
                          const Patience&) {
  epoll_ = Descriptor(open_with_room([] { return ::epoll_create1(EPOLL_CLOEXEC); }));
  if (!epoll_) return system_error("create an epoll descriptor", errno);
  for (const auto& rail : rails_) {
    if (Error error = watch(epoll_, rail->descriptor())) return error;
    if (Error error = watch(epoll_, rail->event_descriptor())) return error;
  }
  for (std::size_t r = 0; r < by_rank_.size(); ++r) {
    VerbsPair* pair = by_rank_[r].get();
    if (!pair) continue;
    if (use[r] == 0) {
      pair->close(Error());  // the devices' memory for it is not needed
      continue;
    }
    if (Error error = pair->open()) return error;
    pairs_.push_back(pair);
  }
  return {};
}

// Sleeps a little, unless something has come.
void VerbsRanks::nap(std::uint64_t deadline_ns) {
  if (!arm()) return;
  wait_for(descriptor(), POLLIN, std::min(deadline_ns, monotonic_ns() + nap_ns));
}

void VerbsRanks::close(std::uint64_t deadline_ns) {
  using Leaving = VerbsPair::Leaving;
  const auto turn_while = [&](Leaving step, std::uint64_t limit_ns) {
    const auto is = [step](const VerbsPair* pair) { return pair->is(step); };
    while (std::ranges::any_of(pairs_, is) && monotonic_ns() < limit_ns) {
      if (!progress() && std::ranges::any_of(pairs_, is)) nap(limit_ns);
    }
  };
  turn_while(Leaving::sending, deadline_ns);
  for (VerbsPair* pair : pairs_) pair->say_goodbye();
  turn_while(Leaving::saying_goodbye, deadline_ns);
  turn_while(Leaving::awaiting_answer, std::min(deadline_ns, monotonic_ns() + farewell_ns));
  for (VerbsPair* pair : pairs_) {
    pair->close(Error(Code::invalid_usage, "this rank has closed its connections"));
  }
}

}  // namespace pith
