#include "startup/transport_setup.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/log.hpp"
#include "startup/start_log.hpp"
#include "startup/topology.hpp"
#include "streams/stream_memory.hpp"
#include "transport/keep_descriptors.hpp"

namespace pith {

namespace {

// Counting a free descriptor costs a system call each.
constexpr std::size_t descriptors_of_interest = std::size_t{1} << 16;

std::vector<std::string_view> names_of(TransportTable table) {
  std::vector<std::string_view> names(table.size());
  for (std::size_t t = 0; t < table.size(); ++t) names[t] = table[t]->name;
  return names;
}

// Its own, because a port of one communicator may be another one's later.
Secret secret_of(const CommIdentity& who) {
  return derive(who.control->secret(), std::as_bytes(std::span(&who.key, 1)));
}

bool contains(std::uint8_t transports, std::size_t one) { return (transports >> one & 1) != 0; }

// The same on all ranks, as both settings are.
Error check_encryption(const Settings& settings, const TransportRule& rule, TransportTable table) {
  for (const TransportFactory* transport : table) {
    if (!rule.names(transport->name) || transport->is_allowed(settings)) continue;
    return {Code::invalid_usage,
            fmt::format("PITH_TRANSPORT is \"{}\" and PITH_ENCRYPT is 1, but {} cannot encrypt: of "
                        "those that leave the host only tcp can",
                        settings.transport, transport->name)};
  }
  return {};
}

// Several connections of a pair help few ranks to fill a link or more cores; many do so with one
// each, and start sooner.
int most_streams(std::size_t most_on_host, const Settings& settings) {
  constexpr std::size_t few_on_host = 32;
  return most_on_host > few_on_host ? 1 : settings.tcp.streams;
}

}  // namespace

TransportSetup::TransportSetup(Engine& engine, const CommIdentity& who, Gatherer& gatherer,
                               const Settings& settings, TransportTable table)
    : engine_(engine),
      who_(who),
      rank_(who.rank),
      ranks_(who.members.size()),
      node_(*who.control),
      gatherer_(gatherer),
      settings_(settings),
      table_(table),
      rule_(settings.transport, names_of(table)),
      transports_(table.size()),
      links_(ranks_, none),
      needs_(ranks_) {
  for (const std::string_view name : rule_.order()) {
    const auto named = [name](const TransportFactory* factory) { return factory->name == name; };
    const auto found = std::ranges::find_if(table_, named);
    if (!(*found)->make || !(*found)->is_allowed(settings_)) continue;
    order_.push_back(static_cast<std::size_t>(found - table_.begin()));
  }
}

Error TransportSetup::run(StartLog& log) {
  if (Error error = check_encryption(settings_, rule_, table_)) return error;
  if (Error error = exchange()) return error;
  for (std::size_t r = 0; r < ranks_; ++r) needs_[r].share = all_[r].descriptors;
  if (Error error = streams_with_room(needs_, settings_.tcp.streams, false).error()) return error;
  log.phase("introductions");
  Expected<Reached> reached = attach();
  if (!reached) return reached.error();
  if (Error error = listen_late(*reached)) return error;
  choose(*reached);
  log.phase("shared memory");
  if (logs(LogLevel::debug)) tell(log);
  Error error = connect();
  log.phase("connections");
  return error;
}

Error TransportSetup::listen(std::size_t transport, std::string& address) {
  const TransportFactory& factory = *table_[transport];
  const TransportSite site{
      engine_.scheduler(), engine_.mailbox(), rank_,     static_cast<int>(ranks_),
      secret_of(who_),     node_.host(),      settings_, rule_.names(factory.name)};
  Expected<std::unique_ptr<PeerTransport>> made = factory.make(site);
  if (!made) return made.error();
  if (!*made) return {};
  Expected<std::string> listens = (*made)->listen();
  if (!listens) return factory.dispensable && order_.size() > 1 ? Error() : listens.error();
  address = std::move(*listens);
  transports_[transport] = std::move(*made);
  return {};
}

Error TransportSetup::exchange() {
  PeerInfo mine;
  mine.settings = agreed_text(settings_);
  mine.cores = UsableCores::of_this_thread();
  mine.devices = devices_in_use();
  mine.addresses.resize(table_.size());
  for (const std::size_t t : order_) {
    if (stands_back(t, mine)) continue;
    if (Error error = listen(t, mine.addresses[t])) return error;
  }
  // The bound for the case that all ranks are threads of one process.
  const std::size_t most = ranks_ * ranks_ * static_cast<std::size_t>(settings_.tcp.streams + 2);
  mine.descriptors = DescriptorShare::of_this_process(std::min(most, descriptors_of_interest),
                                                      node_.descriptors_to_come());
  mine.host_id = settings_.host_id;
  if (orders_by_locality(settings_, ranks_)) {
    Locality at = own_locality();
    if (!mine.host_id.empty()) at.host = mine.host_id;
    mine.locality = at.pack();
  }
  Expected<std::vector<std::string>> blobs = gatherer_.gather(mine.pack());
  if (!blobs) return blobs.error();
  for (const std::string& blob : *blobs) {
    PeerInfo& one = all_.emplace_back(PeerInfo::unpack(blob));
    one.addresses.resize(table_.size());
    facts_.devices = facts_.devices && !one.devices.empty();
    if (one.descriptors.process == mine.descriptors.process) continue;
    auto& others = facts_.devices_of_others;
    others.insert(others.end(), one.devices.begin(), one.devices.end());
  }
  return check_settings();
}

Error TransportSetup::check_settings() const {
  const std::string& ours = all_[static_cast<std::size_t>(rank_)].settings;
  for (std::size_t r = 0; r < ranks_; ++r) {
    const std::string differs = difference(all_[r].settings, ours);
    if (differs.empty()) continue;
    return {Code::invalid_usage,
            fmt::format("rank {} and rank {} disagree on a setting that all must share: {}", r,
                        rank_, differs),
            static_cast<int>(r)};
  }
  return {};
}

std::vector<std::string> TransportSetup::addresses_of(std::size_t transport) const {
  std::vector<std::string> addresses;
  addresses.reserve(ranks_);
  for (const PeerInfo& one : all_) addresses.push_back(one.addresses[transport]);
  return addresses;
}

// Adds the ranks that are reached by it to `mine`, which has those that it reached before.
Error TransportSetup::attach(std::size_t transport, std::string& mine) {
  const PeerInfo& self = all_[static_cast<std::size_t>(rank_)];
  std::vector<std::string> addresses = addresses_of(transport);
  for (std::size_t r = 0; r < ranks_; ++r) {
    const bool apart = is_memory(transport) && all_[r].host_id != self.host_id;
    if (apart || contains(static_cast<std::uint8_t>(mine[r]), transport)) addresses[r].clear();
  }
  std::vector<bool> attached;
  if (Error error = transports_[transport]->attach(addresses, attached, gatherer_.patience())) {
    return error;
  }
  for (std::size_t r = 0; r < ranks_; ++r) {
    if (attached[r]) mine[r] = static_cast<char>(mine[r] | 1 << transport);
  }
  return {};
}

Expected<TransportSetup::Reached> TransportSetup::attach() {
  std::string mine(ranks_, '\0');
  for (std::size_t t = 0; t < table_.size(); ++t) {
    if (!transports_[t]) continue;
    if (Error error = attach(t, mine)) return error;
  }
  return gatherer_.gather(mine);
}

// Whether the rank has left this transport out at first, because it has the better one of the two.
// Those that are asked for by name must all be usable.
bool TransportSetup::stands_back(std::size_t transport, const PeerInfo& rank) const {
  if (rule_.names(table_[transport]->name)) return false;
  return std::ranges::any_of(order_, [&](std::size_t better) {
    return table_[better]->name == table_[transport]->stands_in_for &&
           !rank.addresses[better].empty();
  });
}

// Ranks that stood back and have a peer that they would reach best by this transport.
std::vector<bool> TransportSetup::needed_after_all(std::size_t transport,
                                                   const Reached& reached) const {
  std::vector<bool> needed(ranks_);
  const auto back = [&](std::size_t rank) { return stands_back(transport, all_[rank]); };
  const auto may = [&](std::size_t rank) {
    return back(rank) || !all_[rank].addresses[transport].empty();
  };
  for (std::size_t a = 0; a < ranks_; ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      const std::uint8_t by = reach_each_other(reached, a, b);
      const auto best = std::ranges::find_if(
          order_, [&](std::size_t t) { return t == transport || contains(by, t); });
      if (*best != transport || !may(a) || !may(b)) continue;
      for (const std::size_t end : {a, b}) needed[end] = needed[end] || back(end);
    }
  }
  return needed;
}

// All ranks know the same of each other, so they agree on whether anything is left to be made.
Error TransportSetup::listen_late(Reached& reached) {
  for (const std::size_t t : order_) {
    if (table_[t]->stands_in_for.empty()) continue;
    const std::vector<bool> needed = needed_after_all(t, reached);
    if (std::ranges::find(needed, true) == needed.end()) continue;
    const auto self = static_cast<std::size_t>(rank_);
    std::string address = all_[self].addresses[t];
    if (needed[self]) {
      if (Error error = listen(t, address)) return error;
    }
    const Expected<std::vector<std::string>> addresses = gatherer_.gather(address);
    if (!addresses) return addresses.error();
    for (std::size_t r = 0; r < ranks_; ++r) all_[r].addresses[t] = (*addresses)[r];
    std::string mine = reached[self];
    if (transports_[t]) {
      if (Error error = attach(t, mine)) return error;
    }
    Expected<Reached> again = gatherer_.gather(mine);
    if (!again) return again.error();
    reached = std::move(*again);
  }
  return {};
}

std::uint8_t TransportSetup::reach_each_other(const Reached& reached, std::size_t a,
                                              std::size_t b) const {
  const auto one_way = [&](std::size_t from, std::size_t to) {
    return reached[from].size() == ranks_ ? static_cast<std::uint8_t>(reached[from][to]) : 0;
  };
  return static_cast<std::uint8_t>(one_way(a, b) & one_way(b, a));
}

void TransportSetup::choose(const Reached& reached) {
  RankGroups groups(ranks_);
  RankGroups machines(ranks_);  // by hardware, ignoring PITH_HOST_ID: the cores are shared all the
                                // same
  for (std::size_t a = 0; a < ranks_; ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      const std::uint8_t by = reach_each_other(reached, a, b);
      const auto best =
          std::ranges::find_if(order_, [by](std::size_t t) { return contains(by, t); });
      note_link(a, b, best == order_.end() ? none : *best);
      if (!share_host(a, b, by)) continue;
      machines.join(a, b);
      if (all_[a].host_id == all_[b].host_id) groups.join(a, b);
    }
  }
  for (std::size_t r = 0; r < ranks_; ++r) facts_.host_names.push_back(groups.group_of(r));
  put_in_order(groups);
  find_oversubscribed(machines);
}

void TransportSetup::note_link(std::size_t a, std::size_t b, std::size_t link) {
  ++pairs_[link];
  const bool memory = link != none && is_memory(link);
  facts_.all_share_memory = facts_.all_share_memory && memory;
  facts_.any_share_memory = facts_.any_share_memory || memory;
  const auto one = static_cast<int>(a);
  const auto two = static_cast<int>(b);
  const auto all = static_cast<int>(ranks_);
  const bool at_start = are_neighbours(one, two, all);
  const bool kept = keep_descriptors(one, two, all);
  for (const std::size_t end : {a, b}) {
    const std::size_t other = end == a ? b : a;
    if (end == static_cast<std::size_t>(rank_)) links_[other] = link;
    if (link == none) continue;
    auto& pairs = at_start ? needs_[end].peers : needs_[end].later_peers;
    pairs += table_[link]->descriptors_per_stream;
    if (kept || !memory) needs_[end].other += table_[link]->descriptors_per_peer;
  }
}

// The two ranks share memory, or listen at the same address.
bool TransportSetup::share_host(std::size_t a, std::size_t b, std::uint8_t by) const {
  for (std::size_t t = 0; t < table_.size(); ++t) {
    if (contains(by, t) && is_memory(t)) return true;
    if (!table_[t]->host_of) continue;
    const std::string_view host = table_[t]->host_of(all_[a].addresses[t]);
    if (!host.empty() && host == table_[t]->host_of(all_[b].addresses[t])) return true;
  }
  return false;
}

void TransportSetup::find_oversubscribed(const RankGroups& groups) {
  std::vector<std::vector<UsableCores>> hosts(ranks_);  // each stored at its lowest rank
  for (std::size_t r = 0; r < ranks_; ++r) hosts[groups.group_of(r)].push_back(all_[r].cores);
  facts_.oversubscribed_here =
      are_oversubscribed(hosts[groups.group_of(static_cast<std::size_t>(rank_))]);
  facts_.oversubscribed = std::any_of(hosts.begin(), hosts.end(),
                                      [](const auto& host) { return are_oversubscribed(host); });
  for (const auto& host : hosts) most_on_host_ = std::max(most_on_host_, host.size());
}

void TransportSetup::put_in_order(const RankGroups& groups) {
  if (!orders_by_locality(settings_, ranks_)) return;
  std::vector<Locality> ranks;
  ranks.reserve(ranks_);
  for (const PeerInfo& one : all_) ranks.push_back(Locality::unpack(one.locality));
  facts_.order = order_by_locality(ranks, groups);
}

Error TransportSetup::check_all_reached() const {
  for (std::size_t r = 0; r < ranks_; ++r) {
    if (r == static_cast<std::size_t>(rank_) || links_[r] != none) continue;
    // A rank that died before it attached also ends up here.
    return {Code::system,
            fmt::format("rank {} and rank {} have no transport in common; PITH_TRANSPORT is "
                        "\"{}\", known are {}",
                        rank_, r, settings_.transport, fmt::join(names_of(table_), ", ")),
            static_cast<int>(r)};
  }
  return {};
}

// The same order on all ranks, so that no two wait for each other in different transports.
Error TransportSetup::connect() {
  if (Error error = check_all_reached()) return first(error);
  for (std::size_t t = 0; t < table_.size(); ++t) {
    if (std::ranges::find(links_, t) == links_.end()) transports_[t].reset();
  }
  // The same number on all ranks: both ends of a pair cut messages alike.
  const auto most = static_cast<std::size_t>(settings_.tcp.connect_ranks);
  const Expected<PairStreams> streams =
      streams_with_room(needs_, most_streams(most_on_host_, settings_), most != 0 && ranks_ > most);
  if (!streams) return first(streams.error());
  for (const auto& transport : transports_) {
    if (transport) transport->use_streams(*streams);
  }
  for (std::size_t t = 0; t < table_.size(); ++t) {
    if (!transports_[t]) continue;
    std::vector<std::uint8_t> use(ranks_);
    for (std::size_t r = 0; r < ranks_; ++r) use[r] = links_[r] == t;
    if (Error error = transports_[t]->connect(addresses_of(t), use, gatherer_.patience())) {
      return first(error);
    }
  }
  return {};
}

// A failure reported by another rank explains more than the local error it caused.
Error TransportSetup::first(const Error& error) const {
  const Error cause = gatherer_.failure();
  return cause ? cause : error;
}

Transport* TransportSetup::route_to(std::size_t rank) const {
  return links_[rank] == none ? nullptr : transports_[links_[rank]].get();
}

std::vector<std::unique_ptr<PeerTransport>> TransportSetup::take_transports() {
  std::erase(transports_, nullptr);
  return std::move(transports_);
}

}  // namespace pith
