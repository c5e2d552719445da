// The bound of an all-reduce over loopback TCP: bare sockets move as many bytes as a ring moves,
// from each rank to the next one, at once and without a sum. Every system call is tried in turn, no
// rank sleeps, and what arrives is dropped into recv.
#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bench_common.hpp"
#include "machine.hpp"

namespace {

using pith_bench::Settings;
using pith_bench::World;

[[noreturn]] void fail(const char* what) {
  throw std::runtime_error(fmt::format("{}: {}", what, std::strerror(errno)));
}

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {
    if (fd < 0) fail("socket");
  }
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// Where a rank is connected to; made before the ranks, which inherit it.
struct Listener {
  Socket socket{::socket(AF_INET, SOCK_STREAM, 0)};
  sockaddr_in address = {};

  Listener() {
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const raw = reinterpret_cast<sockaddr*>(&address);
    socklen_t length = sizeof address;
    if (::bind(socket.get(), raw, length) != 0) fail("bind");
    if (::listen(socket.get(), SOMAXCONN) != 0) fail("listen");
    if (::getsockname(socket.get(), raw, &length) != 0) fail("getsockname");
  }
};

Socket without_delay(Socket socket) {
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return socket;
}

std::vector<Socket> connect_to(const Listener& next, int streams) {
  std::vector<Socket> sockets;
  for (int s = 0; s < streams; ++s) {
    Socket& socket = sockets.emplace_back(without_delay(Socket(::socket(AF_INET, SOCK_STREAM, 0))));
    const auto* const raw = reinterpret_cast<const sockaddr*>(&next.address);
    if (::connect(socket.get(), raw, sizeof next.address) != 0) fail("connect");
  }
  return sockets;
}

std::vector<Socket> accept_from(const Listener& own, int streams) {
  std::vector<Socket> sockets;
  for (int s = 0; s < streams; ++s) {
    sockets.push_back(without_delay(Socket(::accept(own.socket.get(), nullptr, nullptr))));
  }
  return sockets;
}

// One direction of one socket in one call.
struct Share {
  int fd;
  std::byte* data;
  std::size_t left;

  // False: nothing more can be moved now.
  template <class Move>
  bool step(Move move) {
    constexpr std::size_t most_bytes = std::size_t{256} << 10;
    if (left == 0) return false;
    const ssize_t moved = move(fd, data, std::min(left, most_bytes));
    if (moved == 0) throw std::runtime_error("the other rank has ended");
    if (moved < 0) {
      if (errno != EAGAIN && errno != EINTR) fail("move bytes");
      return false;
    }
    data += moved;
    left -= static_cast<std::size_t>(moved);
    return true;
  }
};

class Exchange final : public pith_bench::Contender {
 public:
  // `yields`: ranks share cores.
  Exchange(const World& world, const std::vector<Listener>& listeners, int streams, bool yields)
      : ranks_(static_cast<std::size_t>(world.ranks())), yields_(yields) {
    const auto own = static_cast<std::size_t>(world.rank());
    out_ = connect_to(listeners[(own + 1) % ranks_], streams);
    in_ = accept_from(listeners[own], streams);
  }

  bool has_result() const override { return false; }

  void prepare(const float* send, float* recv, std::size_t count) override {
    send_ = reinterpret_cast<std::byte*>(const_cast<float*>(send));
    recv_ = reinterpret_cast<std::byte*>(recv);
    bytes_ = count * sizeof(float);
  }

  void call() override {
    std::size_t left = std::max(bytes_, 2 * (ranks_ - 1) * bytes_ / ranks_);
    while (left != 0) {  // a ring of more than two ranks moves more than a vector
      const std::size_t now = std::min(left, bytes_);
      exchange(now);
      left -= now;
    }
  }

 private:
  static std::vector<Share> cut(const std::vector<Socket>& sockets, std::byte* data,
                                std::size_t bytes) {
    std::vector<Share> shares;
    const std::size_t each = (bytes + sockets.size() - 1) / sockets.size();
    for (std::size_t at = 0; at < bytes; at += each) {
      shares.push_back({sockets[shares.size()].get(), data + at, std::min(each, bytes - at)});
    }
    return shares;
  }

  void exchange(std::size_t bytes) {
    std::vector<Share> sends = cut(out_, send_, bytes);
    std::vector<Share> receives = cut(in_, recv_, bytes);
    const auto send = [](int fd, const std::byte* data, std::size_t size) {
      return ::send(fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    };
    const auto receive = [](int fd, std::byte* data, std::size_t size) {
      return ::recv(fd, data, size, MSG_DONTWAIT);
    };
    const auto has_more = [](const Share& share) { return share.left != 0; };
    while (std::ranges::any_of(sends, has_more) || std::ranges::any_of(receives, has_more)) {
      bool moved = false;
      for (Share& share : sends) moved |= share.step(send);
      for (Share& share : receives) moved |= share.step(receive);
      if (!moved && yields_) ::sched_yield();
    }
  }

  std::size_t ranks_;
  bool yields_;
  std::vector<Socket> out_;
  std::vector<Socket> in_;
  std::byte* send_ = nullptr;
  std::byte* recv_ = nullptr;
  std::size_t bytes_ = 0;
};

int run(const Settings& settings, int streams) {
  const std::vector<Listener> listeners(static_cast<std::size_t>(settings.ranks));
  const bool yields = settings.ranks > pith_bench::core_count();
  return pith_bench::run_ranks(settings, [&](World& world) {
    Exchange exchange(world, listeners, streams, yields);
    const auto rows = pith_bench::measure(settings, world, exchange);
    if (world.rank() == 0) {
      const std::string setting = fmt::format("{} streams", streams);
      pith_bench::report(settings, {"sockets", "bare", "tcp on loopback", setting}, rows);
    }
    world.barrier();
  });
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("times bare sockets that move the bytes of an all-reduce over loopback TCP");
  Settings settings;
  int streams = 1;
  pith_bench::add_options(app, settings);
  app.get_option("--transport")->description("ignored: always TCP on loopback");
  app.get_option("--memory")->description("ignored: always private");
  app.add_option("--streams", streams, "connections from each rank to the next")
      ->check(CLI::Range(1, 16));
  return pith_bench::bench_main(app, argc, argv, [&] {
    settings.memory = "private";
    return run(settings, streams);
  });
}
