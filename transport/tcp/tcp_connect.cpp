// How TcpTransport connects its ranks, at start-up and later.
#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "core/descriptor_limit.hpp"
#include "core/log.hpp"
#include "transport/tcp/tcp.hpp"
#include "transport/tcp/tcp_address.hpp"
#include "transport/tcp/tcp_peer.hpp"

namespace pith {

Expected<std::string> TcpTransport::listen() {
  const std::string_view host = listening_host(options_.host, options_.rails);
  Expected<Descriptor> listener = listen_on(host, options_.ports);
  if (!listener) return listener.error();
  Expected<Address> address = local_address(listener->get());
  if (!address) return address.error();
  listener_ = std::move(*listener);
  return address_with_rails(format_address(*address), options_.host, options_.rails);
}

void TcpTransport::use_streams(const PairStreams& streams) {
  if (rank_ == 0 && streams.on_demand) {
    log(LogLevel::info, "pairs of ranks that are no neighbours connect when a message wants it");
  }
  if (rank_ == 0 && streams.at_start < options_.streams.at_start) {
    log(LogLevel::info,
        fmt::format("{} TCP connections between two ranks in place of {} (PITH_STREAMS): for more "
                    "there are not enough descriptors (ulimit -Hn)",
                    streams.at_start, options_.streams.at_start));
  }
  options_.streams = streams;
}

Error TcpTransport::connect(std::span<const std::string> addresses,
                            std::span<const std::uint8_t> use, const Patience& patience) {
  TcpMeshPlan plan;
  plan.secret = secret_;
  plan.rank = rank_;
  plan.ranks = ranks_;
  plan.heartbeat_s = options_.heartbeat_s;
  plan.addresses.assign(addresses.begin(), addresses.end());
  plan.rails = 1 + options_.rails.size();
  plan.encrypt = options_.encrypt;
  plan.streams.resize(static_cast<std::size_t>(ranks_));
  plan.resumes.resize(static_cast<std::size_t>(ranks_));
  std::vector<std::uint8_t> now(static_cast<std::size_t>(ranks_));
  std::size_t connections = 0;
  const std::string& own = addresses[static_cast<std::size_t>(rank_)];
  for (int peer = 0; peer < ranks_; ++peer) {
    const auto p = static_cast<std::size_t>(peer);
    if (peer == rank_ || use[p] == 0) continue;
    now[p] = !options_.streams.on_demand || are_neighbours(rank_, peer, ranks_);
    plan.streams[p] = now[p] != 0 ? options_.streams.at_start : options_.streams.later;
    if (now[p] != 0) connections += static_cast<std::size_t>(plan.streams[p]);
    const LinkKind link{plan.streams[p],
                        outlives_connections(options_.reconnect, own, addresses[p]),
                        host_of(own) == host_of(addresses[p])};
    plan.resumes[p] = link.outlives_connections ? 1 : 0;
    by_rank_[p] = std::make_unique<Peer>(peer, link, *this);
    peers_.push_back(by_rank_[p].get());
  }
  make_descriptor_room(connections);
  mesh_ = std::make_unique<TcpMesh>(std::move(plan), std::move(listener_));
  if (Error error = mesh_->connect(now, patience)) return error;
  return watch_mesh();
}

Error TcpTransport::watch_mesh() {
  epoll_ = Descriptor(open_with_room([] { return ::epoll_create1(EPOLL_CLOEXEC); }));
  if (!epoll_) return system_error("create an epoll descriptor", errno);
  for (auto* list : {&departed_, &ready_, &unreported_}) list->reserve(peers_.size());
  take_links();
  // Of pairs that connect later, a failure counts once something is sent.
  for (const Peer* peer : peers_) {
    if (peer->open && peer->error) return peer->error;
  }
  if (!mesh_) return {};
  epoll_event event{};
  event.events = EPOLLIN;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, mesh_->descriptor(), &event) == 0) return {};
  return system_error("watch new connections", errno);
}

// What has been queued for a peer goes when its streams are open.
bool TcpTransport::take_links() {
  TcpMesh::News news = mesh_->take_news();
  for (TcpMesh::Opened& opened : news.opened) {
    Peer& peer = *find(opened.peer);
    if (!peer.live) continue;
    if (Error error = peer.adopt(std::move(opened), epoll_.get())) lose(peer, error);
  }
  for (TcpMesh::Reopened& reopened : news.reopened) {
    Peer& peer = *find(reopened.peer);
    const ConnectionKeys* const keys = options_.encrypt ? &reopened.keys : nullptr;
    if (!peer.live) {
      say_farewell(reopened.socket.get(), keys);
      continue;
    }
    Stream& stream = *peer.streams[static_cast<std::size_t>(reopened.stream)];
    if (Error error = stream.resume(std::move(reopened.socket), keys, epoll_.get())) {
      lose(peer, error);
    }
  }
  for (const TcpMesh::Failed& failed : news.failed) {
    Peer& peer = *find(failed.peer);
    switch (failed.how) {
      case TcpMesh::Failed::How::gone:
        peer.stop_resuming();
        read(peer);
        if (peer.live && (!peer.open || peer.all_ended())) depart(peer);
        break;
      case TcpMesh::Failed::How::unreachable:
        lose(peer, ETIMEDOUT);
        break;
      case TcpMesh::Failed::How::refused:
        lose(peer, failed.error);
        break;
    }
  }
  end_mesh();
  return true;
}

// Where nothing is to be opened any more, or again.
void TcpTransport::end_mesh() {
  const auto resumes = [](const Peer* peer) { return peer->resumes; };
  if (mesh_->all_open() && std::ranges::none_of(peers_, resumes)) mesh_.reset();
}

}  // namespace pith
