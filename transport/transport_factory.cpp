#include "transport/transport_factory.hpp"

#include <fmt/format.h>

#include "settings/transport_names.hpp"

namespace pith {

Expected<std::unique_ptr<PeerTransport>> not_available(const TransportSite& site,
                                                       std::string_view name, const Error& why) {
  if (!site.named) return std::unique_ptr<PeerTransport>();
  return Error(Code::invalid_argument,
               fmt::format("PITH_TRANSPORT is \"{}\", and {} is not available to rank {}: {}; "
                           "known are {}",
                           site.settings.transport, name, site.rank, why.message(),
                           fmt::join(transport_names, ", ")));
}

}  // namespace pith
