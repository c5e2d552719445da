#include "transport/tcp/tcp_round_trip.hpp"

#include <linux/tcp.h>  // its tcp_info has more than the C library's
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "transport/tcp/tcp.hpp"
#include "transport/tcp/tcp_peer.hpp"

namespace pith {

double round_trip_of(int fd) {
  constexpr auto none = std::numeric_limits<decltype(tcp_info::tcpi_min_rtt)>::max();
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  return info.tcpi_min_rtt == none ? 0 : info.tcpi_min_rtt * 1e-6;
}

double TcpTransport::round_trip_s() const {
  double longest = 0;
  for (const Peer* peer : peers_) {
    double least = std::numeric_limits<double>::infinity();
    for (const auto& stream : peer->streams) {
      const double one = stream->socket ? round_trip_of(stream->socket.get()) : 0;
      if (one > 0) least = std::min(least, one);
    }
    if (std::isfinite(least)) longest = std::max(longest, least);
  }
  return longest;
}

}  // namespace pith
