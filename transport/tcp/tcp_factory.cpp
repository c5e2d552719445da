#include <fmt/format.h>

#include <algorithm>

#include "transport/tcp/tcp.hpp"
#include "transport/transport_factory.hpp"

namespace pith {

namespace {

Expected<std::unique_ptr<PeerTransport>> make(const TransportSite& site) {
  TcpOptions options;
  options.host = site.host;
  options.streams = {site.settings.streams, site.settings.streams, false};
  options.heartbeat_s = site.settings.heartbeat;
  options.ports = site.settings.ports;
  std::unique_ptr<PeerTransport> made = std::make_unique<TcpTransport>(
      site.scheduler, site.mailbox, site.rank, site.ranks, site.secret, options);
  return made;
}

Expected<std::string> usable(const ListenPlace& place) {
  if (place.why_not) return place.why_not;
  Scheduler scheduler;
  Mailbox mailbox(scheduler, 2);
  TcpOptions options;
  options.host = place.host;
  TcpTransport trial(scheduler, mailbox, 0, 2, {}, options);
  if (Error error = trial.listen().error()) return error;
  return fmt::format("sockets at {} ({})", place.host, place.why);
}

// Of "host:port".
std::string_view host_of(std::string_view address) {
  return address.substr(0, std::min(address.size(), address.rfind(':')));
}

}  // namespace

extern const TransportFactory tcp_factory;
constinit const TransportFactory tcp_factory = {
    .name = "tcp",
    .medium = Medium::sockets,
    .descriptors_per_stream = 1,
    .make = make,
    .usable = usable,
    .host_of = host_of,
};

}  // namespace pith
