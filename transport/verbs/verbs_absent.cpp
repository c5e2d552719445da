// Stands in for this folder where libibverbs' headers were not found.
#include <fmt/format.h>

#include "settings/transport_names.hpp"
#include "transport/transport_factory.hpp"

namespace pith {
namespace {

Error absent() {
  return {Code::system,
          "this build has no verbs transport: libibverbs-dev was not there when it was made"};
}

Expected<std::unique_ptr<PeerTransport>> make(const TransportSite& site) {
  if (!site.named) return std::unique_ptr<PeerTransport>();
  return Error(Code::invalid_argument,
               fmt::format("PITH_TRANSPORT is \"{}\", and verbs is not available to rank {}: {}; "
                           "known are {}",
                           site.settings.transport, site.rank, absent().message(),
                           fmt::join(transport_names, ", ")));
}

Expected<std::string> usable(const ListenPlace&) { return absent(); }

}  // namespace

extern const TransportFactory verbs_factory;
constinit const TransportFactory verbs_factory = {
    .name = "verbs", .medium = Medium::rdma, .make = make, .usable = usable};

}  // namespace pith
