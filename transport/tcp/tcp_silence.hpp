// Whether the other end of a TCP connection still answers.
//
// Where nothing is under way the kernel finds that out, by keep-alive. Where data are, it would do
// so for TCP_USER_TIMEOUT, but that also ends connections whose peer answers and has no room: a
// process that has stopped has a kernel that answers, and is to be waited for. So what is under way
// is judged here, by what the kernel knows of answers.
#pragma once

#include <cstdint>

namespace pith {

// From now on the kernel ends the connection (ETIMEDOUT) when nothing is under way on it and it has
// asked for `limit_s`, at least 3 s, in vain. It begins to ask when nothing has come for a quarter
// of that.
void keep_alive(int fd, double limit_s);

// The error of a connection whose other end cannot be reached any more, while nothing says that it
// has closed it.
bool is_silence(int error);

struct TcpAnswers {
  bool owed = false;          // what was sent last has not been answered yet
  std::uint64_t last_ns = 0;  // age of the last answer
};
TcpAnswers answers_of(int fd);

// Looks at a connection, or at all those to one peer, and tells a dead one from one that has long
// had nothing to say: the age of the last answer alone does not, for a peer without room is asked
// at intervals that grow to minutes.
class TcpSilence {
 public:
  // For so long something has been owed without an answer, as far as these looks show.
  std::uint64_t look(const TcpAnswers& answers, std::uint64_t now_ns);

 private:
  bool owed_ = false;  // at the last look
  std::uint64_t since_ns_ = 0;
  std::uint64_t looked_ns_ = 0;
};

}  // namespace pith
