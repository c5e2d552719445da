#include <fmt/format.h>

#include "transport/transport_factory.hpp"
#include "transport/ucx/ucx.hpp"

namespace pith {

namespace {

// If PITH_TRANSPORT names it, it must work; else it is worth its start-up only with RDMA.
Expected<std::unique_ptr<PeerTransport>> make(const TransportSite& site) {
  if (!site.named && !host_has_rdma()) return std::unique_ptr<PeerTransport>();
  UcxOptions options;
  options.host = site.host;
  options.rdma_only = !site.named;
  if (site.settings.gpudirect == "0") options.direct = UcxOptions::Direct::never;
  if (site.settings.gpudirect == "1") options.direct = UcxOptions::Direct::always;
  Expected<std::unique_ptr<UcxTransport>> made = UcxTransport::create(
      site.scheduler, site.mailbox, site.rank, site.ranks, site.secret, options);
  if (made) return std::unique_ptr<PeerTransport>(std::move(*made));
  return not_available(site, "ucx", made.error());
}

Expected<std::string> usable(const ListenPlace& place) {
  if (place.why_not) return place.why_not;
  const UcxSupport support = ucx_support(place.host);
  if (support.why_not) return support.why_not;
  return fmt::format("UCX {} finds {}RDMA, so it is used {}, never for shared memory; devices: {}",
                     support.version, support.rdma ? "" : "no ",
                     support.rdma ? "before tcp" : "only where PITH_TRANSPORT names it",
                     fmt::join(support.devices, ", "));
}

}  // namespace

extern const TransportFactory ucx_factory;
// With RDMA it takes no descriptors.
constinit const TransportFactory ucx_factory = {.name = "ucx",
                                                .medium = Medium::rdma,
                                                .stands_in_for = "verbs",
                                                .make = make,
                                                .usable = usable};

}  // namespace pith
