#include <fmt/format.h>

#include "settings/transport_names.hpp"
#include "transport/transport_factory.hpp"
#include "transport/verbs/verbs.hpp"
#include "transport/verbs/verbs_rail.hpp"

namespace pith {

namespace {

VerbsWish wish_of(const VerbsSettings& settings, const std::string& host) {
  VerbsWish wish;
  wish.devices = settings.devices;
  wish.host = host;
  wish.gid_index = settings.gid;
  wish.pkey_index = settings.pkey;
  wish.service_level = settings.level;
  wish.traffic_class = settings.traffic_class;
  wish.path_mtu = settings.mtu;
  wish.timeout = settings.timeout;
  wish.retries = settings.retries;
  return wish;
}

Expected<std::unique_ptr<PeerTransport>> make(const TransportSite& site) {
  VerbsOptions options;
  options.cache_bytes = site.settings.verbs.cache;
  Expected<std::unique_ptr<VerbsTransport>> made =
      VerbsTransport::create(verbs_library(), wish_of(site.settings.verbs, site.host),
                             site.scheduler, site.mailbox, site.rank, site.ranks, options);
  if (made) return std::unique_ptr<PeerTransport>(std::move(*made));
  if (!site.named) return std::unique_ptr<PeerTransport>();
  return Error(Code::invalid_argument,
               fmt::format("PITH_TRANSPORT is \"{}\", and verbs is not available to rank {}: {}; "
                           "known are {}",
                           site.settings.transport, site.rank, made.error().message(),
                           fmt::join(transport_names, ", ")));
}

Expected<std::string> usable(const ListenPlace& place) {
  VerbsWish wish;
  if (const Expected<Settings> settings = settings_from_environment()) {
    wish = wish_of(settings->verbs, place.host);
  }
  const VerbsSupport support = verbs_support(wish);
  if (support.why_not) return support.why_not;
  const std::string memory =
      support.why_copies ? fmt::format("by copies, for callers' memory cannot stay registered: {}",
                                       support.why_copies.message())
                         : "straight to and from callers' memory";
  return fmt::format("RDMA ports {}, {}; used before ucx and tcp", fmt::join(support.ports, ", "),
                     memory);
}

}  // namespace

extern const TransportFactory verbs_factory;
constinit const TransportFactory verbs_factory = {
    .name = "verbs", .medium = Medium::rdma, .dispensable = true, .make = make, .usable = usable};

}  // namespace pith
