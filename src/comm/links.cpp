#include "comm/links.hpp"

#include <algorithm>

#include "transport/tcp.hpp"

namespace pith {

Links::Links(const Settings& settings, int rank, int ranks)
    : engine_(std::make_unique<Engine>(ranks)),
      chunk_(settings.chunk),
      pinned_(settings.deterministic),
      rank_(rank),
      routes_(static_cast<std::size_t>(ranks)) {
  tuning_.lanes = settings.lanes;
  context_.scheduler = &engine_->scheduler();
  context_.arena = &engine_->arena();
  context_.mailbox = &engine_->mailbox();
  context_.compute = &compute_;
  context_.host = &compute_;
  context_.comm = &state_;
  context_.routes = routes_;
  context_.rank = rank;
  context_.size = ranks;
}

// A chunk in shared memory should stay in the cache until its reader comes. On sockets the streams
// of a pair share it: 512 KiB are as fast as 1 MiB between 2 and 4 ranks of a host, but for a noise
// of 10 %, and a third faster than 256 KiB for 4 MiB; scratch of 3 ranks is 7 MiB each, not 19.
void Links::set_views(bool all, bool any) {
  constexpr std::size_t view_chunk = std::size_t{64} << 10;
  constexpr std::size_t wire_chunk = std::size_t{512} << 10;
  constexpr std::size_t pinned_chunk = std::size_t{256} << 10;
  context_.views = any;
  context_.choice.views = all && !pinned_;
  const std::size_t best = all ? view_chunk : wire_chunk;
  const std::size_t chunk = pinned_ ? pinned_chunk : best;
  tuning_.chunk_bytes = chunk_ != 0 ? chunk_ : chunk;
}

void Links::set_crowded(bool here, bool anywhere) {
  engine_->set_oversubscribed(here);
  context_.choice.crowded = anywhere && !pinned_;
}

void Links::set_order(RankOrder order) {
  order_ = std::move(order);
  routes_ = order_.arrange(std::span<const Route>(routes_));
  context_.routes = routes_;
  context_.rank = order_.place_of(rank_);
  context_.order = &order_;
}

void Links::set_hosts(std::span<const std::size_t> names) {
  const std::vector<std::size_t> placed = order_.arrange(names);
  hosts_ = Hosts(std::span<const std::size_t>(placed));
  context_.hosts = &hosts_;
  const bool apart = std::any_of(names.begin(), names.end(),
                                 [&](std::size_t name) { return name != names.front(); });
  context_.choice.apart = apart && !pinned_;
}

void Links::add(std::unique_ptr<Transport> transport, Close close) {
  engine_->add(*transport);
  transports_.push_back(std::move(transport));
  if (close) closers_.push_back(std::move(close));
}

void Links::add_tcp(std::unique_ptr<TcpTransport> tcp, Close close) {
  tcp_ = tcp.get();
  add(std::move(tcp), std::move(close));
}

void Links::begin_trace(const std::string& path) {
  trace_ = std::make_unique<CallTrace>(path, rank_, context_, routes_);
}

void Links::revoke(const Error& error) {
  engine_->mailbox().quiesce(state_, error);
  for (const auto& transport : transports_) transport->quiesce(state_, error);
}

void Links::close(const Error& why, std::uint64_t deadline_ns) {
  if (!state_.revoked) state_.revoked = why;
  for (const auto& transport : transports_) transport->quiesce(state_, state_.revoked);
  for (const Close& close : closers_) close(deadline_ns);
  engine_->scheduler().run_ready();
}

}  // namespace pith
