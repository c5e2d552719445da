// Describes the result of the transport set-up for logs.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "startup/start_log.hpp"
#include "startup/transport_setup.hpp"

namespace pith {

namespace {

std::string level(const char* name, int lowest_cpu) {
  return lowest_cpu == Locality::unknown ? "" : fmt::format(", {} of CPU {}", name, lowest_cpu);
}

std::string place_text(const Locality& at) {
  const std::string text = level("package", at.package) + level("NUMA node", at.numa_node) +
                           level("L3", at.cache) + level("core", at.core);
  return text.empty() ? ", not bound to a part of it" : text;
}

}  // namespace

std::string_view TransportSetup::name_of(std::size_t link) const {
  return link == none ? "nothing" : table_[link]->name;
}

// Why this pair uses none of the transports that are preferred to the one in use.
std::string TransportSetup::reason(std::size_t peer) const {
  const auto self = static_cast<std::size_t>(rank_);
  const std::size_t used = links_[peer];
  std::string text;
  const auto add = [&](std::size_t transport, const std::string& why) {
    text += fmt::format("{}no {}: {}", text.empty() ? "" : "; ", name_of(transport), why);
  };
  for (std::size_t t = 0; t < table_.size() && t != used; ++t) {
    if (!table_[t]->make) continue;
    if (!rule_.allows(name_of(t))) {
      add(t, fmt::format("PITH_TRANSPORT={}", settings_.transport));
    } else if (!table_[t]->is_allowed(settings_)) {
      add(t, "PITH_ENCRYPT=1");
    }
  }
  for (const std::size_t t : order_) {
    if (t == used) break;
    const bool here = !all_[self].addresses[t].empty();
    const bool there = !all_[peer].addresses[t].empty();
    if (!here || !there) {
      add(t, fmt::format("rank {} has none", here ? peer : self));
    } else {
      add(t, is_memory(t) ? "their memory is apart" : "they do not reach each other");
    }
  }
  return text;
}

std::string TransportSetup::summary() const {
  std::vector<std::size_t> hosts = facts_.host_names;
  std::sort(hosts.begin(), hosts.end());
  const auto count = std::unique(hosts.begin(), hosts.end()) - hosts.begin();
  std::string text = fmt::format("on {} host{}", count, count == 1 ? "" : "s");
  for (std::size_t t = 0; t < table_.size(); ++t) {
    if (pairs_[t] == 0) continue;
    text += fmt::format(", {} pair{} by {}", pairs_[t], pairs_[t] == 1 ? "" : "s", name_of(t));
    if (settings_.tcp.encrypt && table_[t]->encrypts) text += ", encrypted";
  }
  const RankOrder& order = facts_.order;
  if (!order.by_rank()) {
    text += fmt::format(", walked in the order {} (PITH_ORDER)", fmt::join(order.ranks(), ","));
  }
  return text;
}

std::string TransportSetup::host_address(std::size_t rank) const {
  for (std::size_t t = 0; t < table_.size(); ++t) {
    const std::string& address = all_[rank].addresses[t];
    if (table_[t]->host_of && !address.empty()) {
      return fmt::format(" at {}", table_[t]->host_of(address));
    }
  }
  return {};
}

void TransportSetup::tell_places(const StartLog& log) const {
  std::map<std::size_t, std::vector<int>> hosts;
  for (std::size_t r = 0; r < ranks_; ++r)
    hosts[facts_.host_names[r]].push_back(static_cast<int>(r));
  for (const auto& [first, ranks] : hosts) {
    const std::string address = host_address(first);
    std::vector<UsableCores> cores;
    for (const int r : ranks) cores.push_back(all_[static_cast<std::size_t>(r)].cores);
    log.tell(fmt::format("ranks {} share a host{} with {} cores", ranges(ranks), address,
                         count_cores(cores)));
    for (const int r : ranks) {
      const std::string& packed = all_[static_cast<std::size_t>(r)].locality;
      if (packed.empty()) continue;
      const Locality at = Locality::unpack(packed);
      log.tell(fmt::format("rank {} runs under kernel {}{}", r,
                           at.host.empty() ? "unknown" : at.host.substr(0, 8), place_text(at)));
    }
  }
}

void TransportSetup::tell(const StartLog& log) const {
  if (rank_ == 0) tell_places(log);
  std::map<std::string, std::vector<int>> by;
  for (std::size_t r = 0; r < ranks_; ++r) {
    if (r == static_cast<std::size_t>(rank_)) continue;
    const std::string why = reason(r);
    by[fmt::format("{}{}", name_of(links_[r]), why.empty() ? "" : fmt::format(" ({})", why))]
        .push_back(static_cast<int>(r));
  }
  for (const auto& [how, ranks] : by) {
    log.tell(
        fmt::format("reaches rank{} {} by {}", ranks.size() == 1 ? "" : "s", ranges(ranks), how));
  }
  const RankOrder& order = facts_.order;
  log.tell(order.by_rank()
               ? fmt::format("algorithms walk the ranks as they are numbered (PITH_ORDER={})",
                             settings_.order)
               : fmt::format("algorithms walk the ranks in the order {} (PITH_ORDER={})",
                             fmt::join(order.ranks(), ","), settings_.order));
}

}  // namespace pith
