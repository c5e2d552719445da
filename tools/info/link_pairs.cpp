#include "link_pairs.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>

#include "collectives/hosts.hpp"
#include "model/known_links.hpp"
#include "settings/settings.hpp"
#include "settings/transport_rule.hpp"
#include "startup/locality.hpp"

namespace pith_info {

namespace {

// Shared memory is attached by a socket of the network namespace.
std::string network_namespace() {
  struct stat about = {};
  if (stat("/proc/self/ns/net", &about) != 0) return "";
  return std::to_string(about.st_ino);
}

}  // namespace

pith::Expected<Place> place_of(int rank) {
  const pith::Expected<pith::Settings> settings = pith::settings_from_environment();
  if (!settings) return settings.error();
  const bool shares = pith::TransportRule(settings->transport).allows("shm");
  Place place;
  gethostname(place.host.data(), place.host.size() - 1);
  const std::string name = fmt::format("{} {} {} {}", pith::boot_id(), network_namespace(),
                                       settings->host_id, shares ? "" : std::to_string(rank));
  place.name = pith::host_name_hash(settings->host_id);
  place.memory = std::hash<std::string>()(name);
  return place;
}

LinkPairs link_pairs(std::span<const Place> places, std::size_t most_paths) {
  std::vector<std::uint64_t> names;
  for (const Place& place : places) names.push_back(place.memory);
  const pith::Hosts hosts{std::span<const std::uint64_t>(names)};
  LinkPairs pairs;
  for (int b = 0; b < hosts.count(); ++b) {
    const std::span<const int> ranks = hosts.ranks_of(b);
    if (pairs.host.empty() && ranks.size() > 1) pairs.host.push_back({ranks[0], ranks[1]});
    for (int a = 0; a < b && pairs.paths.size() < most_paths; ++a) {
      pairs.paths.push_back({hosts.ranks_of(a)[0], ranks[0]});
    }
  }
  return pairs;
}

}  // namespace pith_info
