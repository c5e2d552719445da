// Whether the other end of a TCP connection still answers.
//
// On idle connections the kernel checks that by keep-alive. For data in flight it would do so by
// TCP_USER_TIMEOUT, but that also ends connections whose peer answers and has no room: the kernel
// of a stopped process answers, and such a process is waited for. So data in flight are judged
// here, by what the kernel knows of answers.
#pragma once

#include <cstdint>

namespace pith {

// Makes the kernel end the connection (ETIMEDOUT) when nothing is in flight and its probes have
// gone unanswered for `limit_s`, at least 3 s. It begins to probe when nothing has come for a
// quarter of that.
void keep_alive(int fd, double limit_s);

// Whether an error means that the peer cannot be reached, and not that it has closed the
// connection.
bool is_silence(int error);

struct TcpAnswers {
  bool owed = false;          // what was sent last is unanswered
  std::uint64_t last_ns = 0;  // age of the last answer
};
TcpAnswers answers_of(int fd);

// Looks at a connection, or at all those to one peer, and tells a dead one from one that has been
// idle for long. The age of the last answer is not enough: a peer without room is probed at
// intervals that grow to minutes.
class TcpSilence {
 public:
  // How long something has been owed without an answer, in ns, as far as these looks show.
  std::uint64_t look(const TcpAnswers& answers, std::uint64_t now_ns);

 private:
  bool owed_ = false;  // at the last look
  std::uint64_t since_ns_ = 0;
  std::uint64_t looked_ns_ = 0;
};

}  // namespace pith
