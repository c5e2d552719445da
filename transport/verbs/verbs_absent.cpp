// Stands in for this folder where libibverbs' headers were not found.
#include "transport/transport_factory.hpp"

namespace pith {
namespace {

Error absent() {
  return {Code::system,
          "this build has no verbs transport: libibverbs-dev was not there when it was made"};
}

Expected<std::unique_ptr<PeerTransport>> make(const TransportSite& site) {
  return not_available(site, "verbs", absent());
}

Expected<std::string> usable(const ListenPlace&) { return absent(); }

}  // namespace

extern const TransportFactory verbs_factory;
constinit const TransportFactory verbs_factory = {
    .name = "verbs", .medium = Medium::rdma, .make = make, .usable = usable};

}  // namespace pith
