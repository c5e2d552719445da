#include "transport/tcp/tcp_silence.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cmath>

namespace pith {
namespace {

constexpr std::uint64_t ms = 1'000'000;
// The kernel counts in ticks of up to 10 ms.
constexpr std::uint64_t tick_ns = 20 * ms;
// The kernel's limits.
constexpr int most_seconds = 32767;
constexpr int most_probes = 127;

}  // namespace

void keep_alive(int fd, double limit_s) {
  const auto set = [fd](int level, int option, double value, int most) {
    const int number = std::clamp(static_cast<int>(value), 1, most);
    ::setsockopt(fd, level, option, &number, sizeof number);
  };
  // Many probes, and at least three: a link that loses packets may lose some.
  const double interval_s = std::max(1.0, std::floor(limit_s / 10));
  const double probes = std::max(3.0, std::ceil(limit_s / interval_s));
  set(IPPROTO_TCP, TCP_KEEPIDLE, limit_s / 4, most_seconds);
  set(IPPROTO_TCP, TCP_KEEPINTVL, interval_s, most_seconds);
  set(IPPROTO_TCP, TCP_KEEPCNT, probes, most_probes);
  set(SOL_SOCKET, SO_KEEPALIVE, 1, 1);
}

bool is_silence(int error) {
  // A kernel that gives up reports the last ICMP error, if there was one.
  switch (error) {
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ENETUNREACH:
    case ENETDOWN:
    case ENONET:
    case EACCES:  // IPv6: traffic is prohibited by now
    case ENOPROTOOPT:
    case ECONNREFUSED:
      return true;
    default:
      return false;
  }
}

TcpAnswers answers_of(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
  TcpAnswers answers;
  // last_data_sent includes retransmissions; tcpi_probes counts probes without an answer.
  const bool unanswered = info.tcpi_last_ack_recv > info.tcpi_last_data_sent;
  answers.owed = info.tcpi_probes != 0 || (info.tcpi_unacked != 0 && unanswered);
  answers.last_ns = info.tcpi_last_ack_recv * ms;
  return answers;
}

// A look may fall into a normal round trip. Something is still owed only if it was owed at the last
// look as well, and no answer at all has come since.
std::uint64_t TcpSilence::look(const TcpAnswers& answers, std::uint64_t now_ns) {
  const bool answered = answers.last_ns <= now_ns - looked_ns_ + tick_ns;
  if (!answers.owed || !owed_ || answered) since_ns_ = now_ns;
  owed_ = answers.owed;
  looked_ns_ = now_ns;
  return now_ns - since_ns_;
}

}  // namespace pith
