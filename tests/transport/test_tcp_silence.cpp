// Peers that acknowledge nothing, and peers that only do not read.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "catch.hpp"
#include "tests/transport/tcp_ranks.hpp"
#include "transport/tcp/tcp_silence.hpp"

namespace pith::test {
namespace {

constexpr std::uint64_t long_ago = 1000 * second;

// The k-th of looks a second apart.
class Looks {
 public:
  std::uint64_t look(bool owed, std::uint64_t last_ns) {
    now_ns_ += second;
    return silence_.look({owed, last_ns}, now_ns_);
  }

 private:
  TcpSilence silence_;
  std::uint64_t now_ns_ = long_ago;
};

TEST_CASE("silence begins when something is owed and nothing is answered", "[silence]") {
  Looks looks;
  CHECK(looks.look(true, 500 * second) == 0);  // just sent, after a long rest
  CHECK(looks.look(true, 501 * second) == second);
  CHECK(looks.look(true, 502 * second) == 2 * second);
}

TEST_CASE("an answer ends silence, and so does it that nothing is owed", "[silence]") {
  const bool owed = GENERATE(true, false);
  Looks looks;
  looks.look(true, 500 * second);
  CHECK(looks.look(true, 501 * second) == second);
  CHECK(looks.look(owed, owed ? second / 2 : 502 * second) == 0);
  CHECK(looks.look(true, 503 * second) == (owed ? second : 0));
}

// A peer without room is asked rarely; a look may fall between a question and its answer.
TEST_CASE("rare answers of a peer without room are no silence", "[silence]") {
  Looks looks;
  for (int i = 0; i < 100; ++i) {
    CHECK(looks.look(true, 60 * second) == 0);
    CHECK(looks.look(false, second / 2) == 0);
    CHECK(looks.look(false, 30 * second) == 0);
  }
}

// The last answer was before the look before last; what is owed is new.
TEST_CASE("what was owed long ago and answered is no silence", "[silence]") {
  TcpSilence silence;
  CHECK(silence.look({true, 3 * second}, long_ago) == 0);
  CHECK(silence.look({true, 500 * second}, long_ago + 600 * second) == 0);
}

TEST_CASE("the kernel asks within the limit", "[silence]") {
  const double limit_s = GENERATE(1.0, 3.0, 10.0, 60.0, 86400.0);
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  REQUIRE(fd >= 0);
  keep_alive(fd, limit_s);
  const auto value = [fd](int level, int option) {
    int number = 0;
    socklen_t size = sizeof number;
    CHECK(::getsockopt(fd, level, option, &number, &size) == 0);
    return number;
  };
  CHECK(value(SOL_SOCKET, SO_KEEPALIVE) != 0);
  const double begins = value(IPPROTO_TCP, TCP_KEEPIDLE);
  const double asks = value(IPPROTO_TCP, TCP_KEEPINTVL) * value(IPPROTO_TCP, TCP_KEEPCNT);
  CHECK(asks >= limit_s);
  CHECK(value(IPPROTO_TCP, TCP_KEEPCNT) >= 3);
  CHECK(begins + asks <= std::max(1.5 * limit_s, 4.0));
  ::close(fd);
}

TEST_CASE("a connection that is closed is no silence", "[silence]") {
  CHECK(is_silence(ETIMEDOUT));
  CHECK(is_silence(EHOSTUNREACH));
  CHECK(is_silence(ENONET));
  CHECK(is_silence(EACCES));
  CHECK_FALSE(is_silence(0));
  CHECK_FALSE(is_silence(ECONNRESET));
  CHECK_FALSE(is_silence(EPIPE));
}

struct Load {
  int messages;
  std::size_t bytes;
};

Task<Error> send_all(TcpRank& me, Load load) {
  for (int i = 0; i < load.messages; ++i) {
    const auto step = static_cast<std::uint32_t>(i);
    const std::vector<std::byte> data = pattern(0, step, load.bytes);
    if (Error error = co_await SendTo(me, me.comm, 1, step, data)) co_return error;
  }
  co_return Error();
}

Task<Error> recv_all(TcpRank& me, Load load) {
  std::vector<std::byte> into(load.bytes);
  for (int i = 0; i < load.messages; ++i) {
    const auto step = static_cast<std::uint32_t>(i);
    if (Error error = co_await RecvFrom(me, me.comm, 0, step, into)) co_return error;
    if (!same(into, pattern(0, step, load.bytes)))
      co_return Error(Code::internal, "wrong contents");
  }
  co_return Error();
}

std::string finish(TcpRank& me, std::barrier<>& all, Task<Error>& task) {
  const std::uint64_t until = monotonic_ns() + 60 * second;
  while (!task.done() && monotonic_ns() < until) me.turn();
  all.arrive_and_wait();
  me.transport->close(monotonic_ns() + second);
  if (!task.done()) return "the ranks hang";
  return task.result() ? task.result().message() : "";
}

// To the kernels its peer is a process that has stopped: nobody reads, and its memory fills up.
std::string send_to_a_sleeper(TcpRank& me, std::barrier<>& all, Load load) {
  bool lost = false;
  me.transport->on_peer_lost = [&](int, const Error&) { lost = true; };
  Task<Error> task = send_all(me, load);
  task.handle().resume();
  const std::uint64_t until = monotonic_ns() + 7 * second / 2;
  while (monotonic_ns() < until && !lost) {
    me.transport->look_at_links(monotonic_ns());
    me.turn();
  }
  const bool stood_still = !task.done();
  all.arrive_and_wait();
  const std::string wrong = finish(me, all, task);
  if (lost) return "a peer that does not read is taken for dead";
  return stood_still ? wrong : "a peer that does not read has taken everything";
}

TEST_CASE("tcp: a peer that does not read is not taken for a dead link", "[silence]") {
  const bool small = GENERATE(true, false);
  const Load load = small ? Load{400'000, 16} : Load{4, 32 << 20};
  TcpOptions options;
  options.heartbeat_s = 1;
  options.streams.at_start = small ? 1 : 4;
  const std::string complaint = run_tcp_ranks(
      2,
      [&](TcpRank& me, std::barrier<>& all) {
        if (me.rank == 0) return send_to_a_sleeper(me, all, load);
        all.arrive_and_wait();
        Task<Error> task = recv_all(me, load);
        task.handle().resume();
        return finish(me, all, task);
      },
      options);
  REQUIRE(complaint == "");
}

}  // namespace
}  // namespace pith::test
