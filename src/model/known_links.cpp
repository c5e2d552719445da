#include "model/known_links.hpp"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <array>

#include "core/mix.hpp"
#include "core/packing.hpp"

namespace pith {

std::string JobPlaces::text() const { return fmt::format("{} ranks on {} hosts", ranks, hosts); }

// Launchers may number the hosts in another order.
JobPlaces places_of(std::vector<std::uint64_t> host_names) {
  JobPlaces places;
  places.ranks = static_cast<int>(host_names.size());
  std::ranges::sort(host_names);
  for (const std::uint64_t name : host_names) places.names = mix(places.names, name);
  const auto repeated = std::ranges::unique(host_names);
  places.hosts = static_cast<int>(host_names.size() - repeated.size());
  return places;
}

std::uint64_t host_name_hash(std::string_view apart) {
  std::array<char, 256> name = {};
  gethostname(name.data(), name.size() - 1);
  std::uint64_t hash = 0;
  for (const std::string_view text : {std::string_view(name.data()), apart}) {
    for (const char one : text) hash = mix(hash, static_cast<unsigned char>(one));
    hash = mix(hash, text.size());
  }
  return hash;
}

const KnownLink& KnownLinks::between(bool several_hosts) const {
  if (calls.known()) return calls;
  const KnownLink& likely = several_hosts ? path : messages;
  const KnownLink& other = several_hosts ? messages : path;
  return likely.known() ? likely : other;
}

std::string KnownLinks::pack() const { return Packer().value(*this).take(); }

KnownLinks KnownLinks::unpack(std::string_view packed) {
  Unpacker unpacker(packed);
  const KnownLinks known = unpacker.value<KnownLinks>();
  return unpacker.whole() && unpacker.empty() ? known : KnownLinks();
}

}  // namespace pith
