#include <fmt/format.h>

#include "core/log.hpp"
#include "transport/transport_factory.hpp"
#include "transport/verbs/verbs.hpp"
#include "transport/verbs/verbs_rail.hpp"

namespace pith {

namespace {

Expected<std::unique_ptr<PeerTransport>> make(const TransportSite& site) {
  VerbsOptions options;
  options.cache_bytes = site.settings.verbs.cache;
  options.direct = site.settings.gpudirect == "1";
  Expected<std::unique_ptr<VerbsTransport>> made =
      VerbsTransport::create(verbs_library(), VerbsWish{site.settings.verbs, site.host},
                             site.scheduler, site.mailbox, site.rank, site.ranks, options);
  if (made) return std::unique_ptr<PeerTransport>(std::move(*made));
  if (!site.named && !site.settings.verbs.text().empty()) {
    log(LogLevel::warn, fmt::format("rank {} has PITH_VERBS={}, but cannot use verbs: {}",
                                    site.rank, site.settings.verbs.text(), made.error().message()));
  }
  return not_available(site, "verbs", made.error());
}

Expected<std::string> usable(const ListenPlace& place) {
  if (place.why_not) return place.why_not;
  VerbsSettings wanted;
  if (const Expected<Settings> settings = settings_from_environment()) wanted = settings->verbs;
  const VerbsSupport support = verbs_support(VerbsWish{wanted, place.host}, wanted.cache);
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
