#include "comm/meeting.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "comm/start_log.hpp"
#include "comm/stream_memory.hpp"
#include "comm/topology.hpp"
#include "core/descriptor_limit.hpp"
#include "core/log.hpp"

namespace pith {

namespace {

// Of "host:port"; empty for a rank without TCP, and such ranks share memory or do not start.
std::string_view host_part(std::string_view address) {
  return address.substr(0, std::min(address.size(), address.rfind(':')));
}

bool have_one_address(std::string_view one, std::string_view other) {
  return !host_part(one).empty() && host_part(one) == host_part(other);
}

// Looking at each costs a system call.
constexpr std::size_t descriptors_of_interest = std::size_t{1} << 16;

std::string flags_of(const std::vector<bool>& flags) {
  std::string text;
  for (const bool flag : flags) text += flag ? '1' : '0';
  return text;
}

// matrix[a][b] == '1': rank a has attached rank b.
using Matrix = std::vector<std::string>;

bool attach_each_other(const Matrix& matrix, std::size_t a, std::size_t b) {
  const auto attached = [&](std::size_t from, std::size_t to) {
    return matrix[from].size() == matrix.size() && matrix[from][to] == '1';
  };
  return attached(a, b) && attached(b, a);
}

}  // namespace

Error Meeting::check_settings(const std::vector<Introduction>& all, int rank) {
  const std::string& ours = all[static_cast<std::size_t>(rank)].settings;
  for (std::size_t r = 0; r < all.size(); ++r) {
    const std::string differs = difference(all[r].settings, ours);
    if (differs.empty()) continue;
    return {Code::invalid_usage,
            fmt::format("rank {} and rank {} disagree on a setting that all must share: {}", r,
                        rank, differs),
            static_cast<int>(r)};
  }
  return {};
}

Meeting::Meeting(Engine& engine, int rank, int ranks, const ControlNode& seat, Gatherer& gatherer,
                 const Settings& settings)
    : rank_(rank),
      ranks_(static_cast<std::size_t>(ranks)),
      seat_(seat),
      gatherer_(gatherer),
      settings_(settings),
      rule_(settings.transport),
      links_(static_cast<std::size_t>(ranks), Link::none),
      engine_(engine) {
  TcpOptions options;
  options.streams = settings.streams;
  options.heartbeat_s = settings.heartbeat;
  options.ports = {settings.port_first, settings.port_last};
  ShmOptions memory;
  memory.copy_bytes = settings.copy_bytes;
  shm = std::make_unique<ShmTransport>(engine.scheduler(), engine.mailbox(), rank, ranks,
                                       seat.secret(), memory);
  tcp = std::make_unique<TcpTransport>(engine.scheduler(), engine.mailbox(), rank, ranks,
                                       seat.secret(), options);
}

Error Meeting::hold(StartLog& log) {
  if (Error error = introduce()) return error;
  needs_.resize(ranks_);
  for (std::size_t r = 0; r < ranks_; ++r) needs_[r].share = all_[r].descriptors;
  if (Error error = streams_with_room(needs_, settings_.streams).error()) return error;
  log.phase("introductions");
  if (Error error = attach()) return error;
  log.phase("shared memory");
  if (logs(LogLevel::debug)) tell(log);
  Error error = connect();
  log.phase("connections");
  return error;
}

// Asked for by name it must be there; else it is worth its start-up only where there is RDMA.
Error Meeting::offer_ucx() {
  const bool named = rule_.names("ucx");
  if (!named && !(rule_.allows("ucx") && host_has_rdma())) return {};
  UcxOptions options;
  options.host = seat_.host();
  options.rdma_only = !named;
  if (settings_.gpudirect == "0") options.direct = UcxOptions::Direct::never;
  if (settings_.gpudirect == "1") options.direct = UcxOptions::Direct::always;
  Expected<std::unique_ptr<UcxTransport>> made =
      UcxTransport::create(engine_.scheduler(), engine_.mailbox(), rank_, static_cast<int>(ranks_),
                           seat_.secret(), options);
  if (!made && !named) return {};
  if (!made) {
    return {Code::invalid_argument,
            fmt::format("PITH_TRANSPORT is \"{}\", and ucx is not available to rank {}: {}; known "
                        "are {}",
                        settings_.transport, rank_, made.error().message(),
                        fmt::join(TransportRule::known, ", "))};
  }
  ucx = std::move(*made);
  return {};
}

Error Meeting::introduce() {
  Introduction mine;
  mine.settings = agreed_text(settings_);
  mine.cores = UsableCores::of_this_thread();
  mine.devices = devices_in_use();
  if (rule_.allows("shm")) {
    Expected<std::string> name = shm->listen();
    if (name) mine.shm_name = *name;
    // A host that forbids memory files still has sockets.
    if (!name && !rule_.allows("tcp") && !rule_.allows("ucx")) return name.error();
  }
  if (Error error = offer_ucx()) return error;
  if (ucx) {
    Expected<std::string> address = ucx->listen();
    if (!address) return address.error();
    mine.ucx_address = *address;
  }
  if (rule_.allows("tcp")) {
    Expected<std::string> address = tcp->listen(seat_.host());
    if (!address) return address.error();
    mine.tcp_address = *address;
  }
  // All ranks may be threads of one process.
  const std::size_t most = ranks_ * ranks_ * static_cast<std::size_t>(settings_.streams + 2);
  mine.descriptors = DescriptorShare::of_this_process(std::min(most, descriptors_of_interest),
                                                      seat_.descriptors_to_come());
  mine.host_id = settings_.host_id;
  if (orders_by_locality(settings_, ranks_)) {
    Locality at = own_locality();
    if (!mine.host_id.empty()) at.host = mine.host_id;
    mine.locality = at.pack();
  }
  Expected<std::vector<std::string>> blobs = gatherer_.gather(mine.pack());
  if (!blobs) return blobs.error();
  for (const std::string& blob : *blobs) {
    const Introduction& one = all_.emplace_back(Introduction::unpack(blob));
    devices = devices && !one.devices.empty();
    if (one.descriptors.process == mine.descriptors.process) continue;
    devices_of_others.insert(devices_of_others.end(), one.devices.begin(), one.devices.end());
  }
  return check_settings(all_, rank_);
}

std::vector<std::string> Meeting::all_of(std::string Introduction::*field) const {
  std::vector<std::string> texts;
  texts.reserve(all_.size());
  for (const Introduction& one : all_) texts.push_back(one.*field);
  return texts;
}

Meeting::Link Meeting::choose(std::size_t a, std::size_t b, bool share_memory) const {
  const auto both = [&](std::string Introduction::*field) {
    return !(all_[a].*field).empty() && !(all_[b].*field).empty();
  };
  for (const std::string_view name : rule_.order()) {
    if (name == "shm" && share_memory) return Link::shm;
    if (name == "ucx" && both(&Introduction::ucx_address)) return Link::ucx;
    if (name == "tcp" && both(&Introduction::tcp_address)) return Link::tcp;
  }
  return Link::none;
}

Error Meeting::attach() {
  std::vector<bool> attached(ranks_, false);
  const auto self = static_cast<std::size_t>(rank_);
  if (!all_[self].shm_name.empty()) {
    std::vector<std::string> names = all_of(&Introduction::shm_name);
    for (std::size_t r = 0; r < ranks_; ++r) {
      if (all_[r].host_id != all_[self].host_id) names[r].clear();
    }
    if (Error error = shm->attach(names, attached, gatherer_.patience())) return error;
  }
  // The deadline may fall between the two ends of a pair: only what both have counts.
  Expected<Matrix> matrix = gatherer_.gather(flags_of(attached));
  if (!matrix) return matrix.error();
  bool uses_shm = false;
  RankGroups groups(ranks_);
  RankGroups machines(ranks_);  // whatever PITH_HOST_ID calls them: their cores are the same
  for (std::size_t a = 0; a < ranks_; ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      const bool shared = attach_each_other(*matrix, a, b);
      const Link link = choose(a, b, shared);
      ++pairs_[static_cast<std::size_t>(link)];
      for (const std::size_t end : {a, b}) {
        needs_[end].peers += link == Link::tcp;
        needs_[end].other += link == Link::shm ? 2U : 0U;  // UCX by RDMA takes none
      }
      all_share_memory = all_share_memory && link == Link::shm;
      any_share_memory = any_share_memory || link == Link::shm;
      if (shared || have_one_address(all_[a].tcp_address, all_[b].tcp_address)) {
        machines.join(a, b);
        if (all_[a].host_id == all_[b].host_id) groups.join(a, b);
      }
      if (a != self && b != self) continue;
      const std::size_t other = a == self ? b : a;
      links_[other] = link;
      local_ranks += shared;
      uses_shm = uses_shm || link == Link::shm;
      if (attached[other] && link != Link::shm) shm->drop(static_cast<int>(other));
    }
  }
  if (!uses_shm) shm.reset();
  for (std::size_t r = 0; r < ranks_; ++r) host_names.push_back(groups.group_of(r));
  put_in_order(groups);
  find_crowds(machines);
  return {};
}

void Meeting::find_crowds(const RankGroups& groups) {
  std::vector<std::vector<UsableCores>> hosts(ranks_);  // each at its lowest rank
  for (std::size_t r = 0; r < ranks_; ++r) hosts[groups.group_of(r)].push_back(all_[r].cores);
  crowded_here = are_crowded(hosts[groups.group_of(static_cast<std::size_t>(rank_))]);
  crowded =
      std::any_of(hosts.begin(), hosts.end(), [](const auto& host) { return are_crowded(host); });
}

void Meeting::put_in_order(const RankGroups& groups) {
  if (!orders_by_locality(settings_, ranks_)) return;
  std::vector<Locality> ranks;
  ranks.reserve(all_.size());
  for (const Introduction& one : all_) ranks.push_back(Locality::unpack(one.locality));
  order = order_by_locality(ranks, groups);
}

std::vector<std::uint8_t> Meeting::reached_by(Link link) const {
  std::vector<std::uint8_t> reached(ranks_, 0);
  for (std::size_t r = 0; r < ranks_; ++r) reached[r] = links_[r] == link;
  return reached;
}

Error Meeting::connect() {
  for (std::size_t r = 0; r < ranks_; ++r) {
    if (r == static_cast<std::size_t>(rank_) || links_[r] != Link::none) continue;
    // A rank that died before it had attached shares no memory either.
    return first({Code::system,
                  fmt::format("rank {} and rank {} have no transport in common; PITH_TRANSPORT is "
                              "\"{}\", known are {}",
                              rank_, r, settings_.transport, fmt::join(TransportRule::known, ", ")),
                  static_cast<int>(r)});
  }
  const std::vector<std::uint8_t> by_ucx = reached_by(Link::ucx);
  const std::vector<std::uint8_t> by_tcp = reached_by(Link::tcp);
  const auto any = [](const std::vector<std::uint8_t>& use) {
    return std::find(use.begin(), use.end(), 1) != use.end();
  };
  if (!any(by_ucx)) ucx.reset();
  if (!any(by_tcp)) tcp.reset();
  if (Error error = agree_on_streams()) return first(error);
  // Ranks that use both do this in the same order.
  if (ucx) {
    const std::vector<std::string> addresses = all_of(&Introduction::ucx_address);
    if (Error error = ucx->connect(addresses, by_ucx, gatherer_.patience())) return first(error);
  }
  if (!tcp) return {};
  return first(tcp->connect(all_of(&Introduction::tcp_address), by_tcp, gatherer_.patience()));
}

// As many for all: both ends of a pair cut messages alike.
Error Meeting::agree_on_streams() {
  const Expected<int> streams = streams_with_room(needs_, settings_.streams);
  if (!streams) return streams.error();
  if (!tcp) return {};
  tcp->use_streams(*streams);
  const DescriptorNeed& ours = needs_[static_cast<std::size_t>(rank_)];
  make_descriptor_room(ours.peers * static_cast<std::uint64_t>(*streams));
  if (rank_ == 0 && *streams < settings_.streams) {
    log(LogLevel::info,
        fmt::format("{} TCP connections between two ranks in place of {} (PITH_STREAMS): for more "
                    "there are not enough descriptors (ulimit -Hn)",
                    *streams, settings_.streams));
  }
  return {};
}

// What has failed elsewhere explains more than what it has led to here.
Error Meeting::first(const Error& error) const {
  const Error cause = error ? gatherer_.failure() : Error();
  return cause ? cause : error;
}

Transport* Meeting::route_to(std::size_t rank) const {
  switch (links_[rank]) {
    case Link::shm:
      return shm.get();
    case Link::ucx:
      return ucx.get();
    case Link::tcp:
      return tcp.get();
    case Link::none:
      break;
  }
  return nullptr;
}

}  // namespace pith
