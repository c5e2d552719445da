#include "comm/open_transports.hpp"

#include <algorithm>

namespace pith {

void OpenTransports::add(std::unique_ptr<PeerTransport> transport) {
  engine_.add(*transport);
  transport->set_oversubscribed(engine_.is_oversubscribed());
  all_.push_back(std::move(transport));
}

void OpenTransports::look_at_links(std::uint64_t now_ns) {
  for (const auto& transport : all_) transport->look_at_links(now_ns);
}

bool OpenTransports::is_link(int rank, LinkState state) const {
  return std::ranges::any_of(all_, [&](const auto& one) { return one->link_to(rank) == state; });
}

void OpenTransports::quiesce(const CommState& state, const Error& error) {
  for (const auto& transport : all_) transport->quiesce(state, error);
}

void OpenTransports::close(std::uint64_t deadline_ns) {
  for (const auto& transport : all_) transport->close(deadline_ns);
}

}  // namespace pith
