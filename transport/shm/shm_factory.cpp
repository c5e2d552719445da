#include "transport/shm/shm.hpp"
#include "transport/transport_factory.hpp"

namespace pith {

namespace {

Expected<std::unique_ptr<PeerTransport>> make(const TransportSite& site) {
  ShmOptions options;
  options.copy_bytes = site.settings.copy_bytes;
  options.copies = site.settings.learn;
  std::unique_ptr<PeerTransport> made = std::make_unique<ShmTransport>(
      site.scheduler, site.mailbox, site.rank, site.ranks, site.secret, options);
  return made;
}

Expected<std::string> usable(const ListenPlace&) {
  Scheduler scheduler;
  Mailbox mailbox(scheduler, 2);
  ShmTransport trial(scheduler, mailbox, 0, 2, {});
  if (Error error = trial.listen().error()) return error;
  return std::string("ranks of one host, through memory files");
}

}  // namespace

extern const TransportFactory shm_factory;
// Dispensable: a host that forbids memory files still has sockets.
constinit const TransportFactory shm_factory = {
    .name = "shm",
    .medium = Medium::shared_memory,
    .descriptors_per_peer = 2,
    .dispensable = true,
    .make = make,
    .usable = usable,
};

}  // namespace pith
