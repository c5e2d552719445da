// What a meeting has found, in words.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "comm/meeting.hpp"
#include "comm/start_log.hpp"

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

std::string_view Meeting::name_of(Link link) {
  constexpr std::string_view names[] = {"nothing", "shm", "ucx", "tcp"};
  return names[static_cast<std::size_t>(link)];
}

// Why it is none of the transports that would have come first.
std::string Meeting::reason(std::size_t peer) const {
  const auto self = static_cast<std::size_t>(rank_);
  const std::string_view used = name_of(links_[peer]);
  const auto lacking = [&](std::string Introduction::*field) {
    if (!(all_[self].*field).empty() && !(all_[peer].*field).empty()) return std::string();
    return fmt::format("rank {} has none", (all_[self].*field).empty() ? self : peer);
  };
  std::string text;
  const auto add = [&](std::string_view name, const std::string& why) {
    text += fmt::format("{}no {}: {}", text.empty() ? "" : "; ", name, why);
  };
  for (const std::string_view name : TransportRule::known) {
    if (name == used) break;
    if (name != "local" && !rule_.allows(name)) {
      add(name, fmt::format("PITH_TRANSPORT={}", settings_.transport));
    }
  }
  for (const std::string_view name : rule_.order()) {
    if (name == used) break;
    if (name == "local") continue;
    const bool by_memory = name == "shm";
    const std::string why =
        lacking(by_memory ? &Introduction::shm_name : &Introduction::ucx_address);
    add(name, why.empty() ? "their memory is apart" : why);
  }
  return text;
}

std::string Meeting::summary() const {
  std::vector<std::size_t> hosts = host_names;
  std::sort(hosts.begin(), hosts.end());
  const auto count = std::unique(hosts.begin(), hosts.end()) - hosts.begin();
  std::string text = fmt::format("on {} host{}", count, count == 1 ? "" : "s");
  for (const Link link : {Link::shm, Link::ucx, Link::tcp}) {
    const std::size_t pairs = pairs_[static_cast<std::size_t>(link)];
    if (pairs == 0) continue;
    text += fmt::format(", {} pair{} by {}", pairs, pairs == 1 ? "" : "s", name_of(link));
  }
  if (!order.by_rank()) {
    text += fmt::format(", walked in the order {} (PITH_ORDER)", fmt::join(order.ranks(), ","));
  }
  return text;
}

void Meeting::tell_places(const StartLog& log) const {
  std::map<std::size_t, std::vector<int>> hosts;
  for (std::size_t r = 0; r < ranks_; ++r) hosts[host_names[r]].push_back(static_cast<int>(r));
  for (const auto& [first, ranks] : hosts) {
    const Introduction& one = all_[first];
    const std::size_t colon = one.tcp_address.rfind(':');
    const std::string address =
        colon == std::string::npos ? "" : " at " + one.tcp_address.substr(0, colon);
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

void Meeting::tell(const StartLog& log) const {
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
  log.tell(order.by_rank()
               ? fmt::format("algorithms walk the ranks as they are numbered (PITH_ORDER={})",
                             settings_.order)
               : fmt::format("algorithms walk the ranks in the order {} (PITH_ORDER={})",
                             fmt::join(order.ranks(), ","), settings_.order));
}

}  // namespace pith
