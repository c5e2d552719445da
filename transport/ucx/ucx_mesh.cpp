// How UcxTransport starts and ends: hello and ready, goodbye and its answer.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "core/clock.hpp"
#include "core/descriptor_limit.hpp"
#include "transport/socket.hpp"
#include "transport/ucx/ucx_ranks.hpp"

namespace pith {
namespace {

constexpr std::uint64_t ms = 1'000'000;
// Time for peers that are not driving UCX at the moment. Closing without their answer could make
// the kernel drop what they have not read.
constexpr std::uint64_t farewell_ns = 100 * ms;
constexpr std::uint64_t nap_ns = 5 * ms;

}  // namespace

Expected<std::string> UcxRanks::listen() {
  Expected<UcxNonce> nonce = fresh_ucx_nonce();
  if (!nonce) return nonce.error();
  nonce_ = *nonce;
  Expected<std::string> worker = worker_->address();
  if (!worker) return worker.error();
  return UcxAddress{nonce_, *worker}.pack();
}

Error UcxRanks::meet(const UcxAddress& theirs, int rank) {
  const UcxTokenInput out{rank_, rank, ranks_, nonce_, theirs.nonce};
  const UcxTokenInput in{rank, rank_, ranks_, theirs.nonce, nonce_};
  auto peer = std::make_unique<Peer>(*this, rank);
  peer->token = ucx_token(secret_, in);
  Expected<ucp_ep_h> endpoint =
      worker_->connect(theirs.worker, &UcxRanks::endpoint_broke, peer.get());
  if (!endpoint && !make_descriptor_room(2)) {
    return system_error(fmt::format("connect to rank {}: {}", rank, endpoint.error().message()),
                        EMFILE);
  }
  if (!endpoint) {
    return {Code::remote, fmt::format("rank {}: {}", rank, endpoint.error().message()), rank};
  }
  peer->endpoint = *endpoint;
  peer->outbox.open(*endpoint, ucx_token(secret_, out));
  peers_.push_back(peer.get());
  by_rank_[static_cast<std::size_t>(rank)] = std::move(peer);
  return {};
}

Error UcxRanks::connect(std::span<const std::string> addresses, std::span<const std::uint8_t> use,
                        const Patience& patience) {
  for (int rank = 0; rank < ranks_; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    if (rank == rank_ || use[r] == 0) continue;
    Expected<UcxAddress> theirs = UcxAddress::unpack(addresses[r]);
    if (!theirs) {
      return {Code::remote, fmt::format("rank {} gave no UCX address", rank), rank};
    }
    if (Error error = meet(*theirs, rank)) return error;
  }
  // UCX connects on demand, sometimes in both directions at once.
  make_descriptor_room(2 * peers_.size());
  unreported_.reserve(peers_.size());
  for (Peer* peer : peers_) peer->outbox.say(UcxKind::hello);
  return await_greetings(patience);
}

// Makes progress, or sleeps a little.
void UcxRanks::turn(std::uint64_t deadline_ns) {
  if (progress() || !arm()) return;
  wait_for(descriptor(), POLLIN, std::min(deadline_ns, monotonic_ns() + nap_ns));
}

// UCX connects on demand and needs both sides driven for that, so no rank may return before all
// others are connected to it. The last message, `ready`, goes over an established connection.
Error UcxRanks::await_greetings(const Patience& patience) {
  begin_flush();
  bool flushed = false;
  const auto met = [&](const Peer* peer) {
    return flushed && peer->said_hello && peer->is_ready && !peer->outbox.saying();
  };
  for (;;) {
    if (!flushed && flushing_ == 0) {
      flushed = true;
      for (Peer* peer : peers_) peer->outbox.say(UcxKind::ready);
    }
    const auto missing = std::find_if_not(peers_.begin(), peers_.end(), met);
    if (missing == peers_.end()) return {};
    const auto lost = std::find_if(peers_.begin(), peers_.end(),
                                   [](const Peer* peer) { return static_cast<bool>(peer->error); });
    if (lost != peers_.end()) return (*lost)->error;
    if (patience.over()) return silent(**missing);
    turn(patience.deadline_ns);
  }
}

Error UcxRanks::silent(const Peer& suspect) const {
  // A peer that has said nothing at all is more likely the cause than one that waits for it, too.
  const auto mute = std::find_if(peers_.begin(), peers_.end(),
                                 [](const Peer* peer) { return !peer->said_hello; });
  const int rank = mute == peers_.end() ? suspect.rank : (*mute)->rank;
  return {Code::remote, fmt::format("rank {} has not answered over UCX in time", rank), rank};
}

void UcxRanks::begin_flush() {
  const auto count_down = [](void* request, ucs_status_t, void* pending) {
    --*static_cast<int*>(pending);
    ucx_library().request_free(request);
  };
  for (Peer* peer : peers_) {
    if (!peer->endpoint) continue;
    ++flushing_;
    if (!UCS_PTR_IS_PTR(worker_->flush(peer->endpoint, count_down, &flushing_))) --flushing_;
  }
}

// Until UCX has passed on our last messages. Over sockets a flush would wait for the peers, as
// await_farewells() does.
void UcxRanks::flush(std::uint64_t deadline_ns) {
  if (worker_->rdma()) begin_flush();
  const auto saying = [](const Peer* peer) { return peer->endpoint && peer->outbox.saying(); };
  while ((flushing_ != 0 || std::any_of(peers_.begin(), peers_.end(), saying)) &&
         monotonic_ns() < deadline_ns) {
    turn(deadline_ns);
  }
}

void UcxRanks::await_farewells(std::uint64_t deadline_ns) {
  const auto waits = [](const Peer* peer) {
    return peer->live && peer->endpoint && !peer->said_farewell;
  };
  while (std::any_of(peers_.begin(), peers_.end(), waits) && monotonic_ns() < deadline_ns) {
    turn(deadline_ns);
  }
}

void UcxRanks::close(std::uint64_t deadline_ns) {
  const auto sending = [](const Peer* peer) { return peer->live && !peer->outbox.empty(); };
  while (std::any_of(peers_.begin(), peers_.end(), sending) && monotonic_ns() < deadline_ns) {
    turn(deadline_ns);
  }
  for (Peer* peer : peers_) {
    if (peer->live && peer->outbox.empty()) peer->outbox.say(UcxKind::goodbye);
  }
  flush(deadline_ns);
  await_farewells(std::min(deadline_ns, monotonic_ns() + farewell_ns));
  const Error closed(Code::invalid_usage, "this rank has closed its connections");
  for (Peer* peer : peers_) {
    peer->live = false;
    if (!peer->error) peer->error = closed;
    peer->outbox.fail(closed);
    let_go(*peer);
    peer->inbox.abandon(closed);
  }
}

}  // namespace pith
