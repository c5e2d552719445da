#include <fmt/format.h>

#include <algorithm>

#include "crypto/libcrypto.hpp"
#include "settings/settings_origin.hpp"
#include "transport/interfaces.hpp"
#include "transport/tcp/tcp.hpp"
#include "transport/tcp/tcp_address.hpp"
#include "transport/transport_factory.hpp"

namespace pith {

namespace {

Error too_few_rails(const TransportSite& site, std::size_t others) {
  return {
      Code::invalid_usage,
      fmt::format("{} is {}, and beside {} there are {} interfaces that may be used: expected "
                  "at most {}",
                  variable_of("RAILS"), site.settings.tcp.rails, site.host, others, 1 + others)};
}

Expected<std::unique_ptr<PeerTransport>> make(const TransportSite& site) {
  TcpOptions options;
  options.encrypt = site.settings.tcp.encrypt;
  if (const Error why_not = options.encrypt ? libcrypto().why_not : Error()) {
    return Error(why_not.code(), fmt::format("PITH_ENCRYPT is 1: {}", why_not.message()));
  }
  options.host = site.host;
  options.streams = {site.settings.tcp.streams, site.settings.tcp.streams, false};
  options.heartbeat_s = site.settings.heartbeat;
  options.reconnect = reconnect_of(site.settings.tcp.reconnect);
  options.ports = site.settings.ports;
  if (site.settings.tcp.rails > 1) {
    const Expected<std::vector<Interface>> all = list_interfaces();
    if (!all) return all.error();
    const InterfaceWish wish{site.settings.ifname, site.settings.socket_family};
    const auto others = static_cast<std::size_t>(site.settings.tcp.rails) - 1;
    options.rails = choose_rails(*all, wish, site.host, others);
    if (options.rails.size() < others) return too_few_rails(site, options.rails.size());
  }
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
  const Error& no_cipher = libcrypto().why_not;
  return fmt::format("sockets at {} ({}), {}", place.host, place.why,
                     no_cipher ? fmt::format("not with PITH_ENCRYPT=1: {}", no_cipher.message())
                               : "encrypted with PITH_ENCRYPT=1");
}

}  // namespace

extern const TransportFactory tcp_factory;
constinit const TransportFactory tcp_factory = {
    .name = "tcp",
    .medium = Medium::sockets,
    .encrypts = true,
    .descriptors_per_stream = 1,
    .make = make,
    .usable = usable,
    .host_of = host_of,
};

}  // namespace pith
