#include "startup/locality.hpp"

#include <algorithm>
#include <fstream>
#include <map>
#include <numeric>
#include <tuple>

#include "core/packing.hpp"

namespace pith {

std::string Locality::pack() const {
  return Packer().text(host).value(package).value(numa_node).value(cache).value(core).take();
}

Locality Locality::unpack(std::string_view packed) {
  Unpacker unpacker(packed);
  Locality locality;
  locality.host = unpacker.text();
  for (int* level : {&locality.package, &locality.numa_node, &locality.cache, &locality.core}) {
    *level = unpacker.value<int>();
  }
  return unpacker.whole() ? locality : Locality();
}

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

RankGroups::RankGroups(std::size_t ranks) : parents_(ranks) {
  std::iota(parents_.begin(), parents_.end(), std::size_t{0});
}

std::size_t RankGroups::group_of(std::size_t rank) const {
  while (parents_[rank] != rank) rank = parents_[rank];
  return rank;
}

void RankGroups::join(std::size_t a, std::size_t b) {
  const std::size_t one = group_of(a);
  const std::size_t other = group_of(b);
  const std::size_t lowest = std::min(one, other);
  parents_[one] = parents_[other] = parents_[a] = parents_[b] = lowest;
}

RankOrder order_by_locality(std::span<const Locality> ranks, const RankGroups& groups) {
  std::map<std::string_view, std::size_t> hosts;  // the lowest rank of each host
  const auto key = [&](std::size_t rank) {
    const Locality& at = ranks[rank];
    const std::size_t group = groups.group_of(rank);
    const std::size_t host = at.host.empty() ? group : hosts.at(at.host);
    return std::tuple(host, group, at.package, at.numa_node, at.cache, at.core, rank);
  };
  std::vector<decltype(key(0))> keys;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    hosts.emplace(ranks[rank].host, rank);
    keys.push_back(key(rank));
  }
  std::sort(keys.begin(), keys.end());
  std::vector<int> order;
  order.reserve(keys.size());
  for (const auto& one : keys) order.push_back(static_cast<int>(std::get<6>(one)));
  return RankOrder(std::move(order));
}

}  // namespace pith
