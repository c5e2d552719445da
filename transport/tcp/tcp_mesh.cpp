#include "transport/tcp/tcp_mesh.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "core/clock.hpp"
#include "core/descriptor_limit.hpp"
#include "transport/accept_limiter.hpp"

namespace pith {
namespace {

constexpr std::uint64_t ms = 1'000'000;
constexpr std::uint64_t retry_ns = 20 * ms;
const char* const purpose = "pith-data";

// An accepted connection that is not authenticated yet.
struct Pending {
  Descriptor socket;
  Handshake handshake;
  short events = POLLIN;
  std::uint64_t since_ns = 0;
};

// A connection that this rank is making.
struct Attempt {
  Address address;
  Greeting greeting;
  Descriptor socket;
  Handshake handshake;
  bool connected = false;
  short events = POLLOUT;
  std::uint64_t not_before_ns = 0;
  Error last;
};

class Mesh {
 public:
  explicit Mesh(const TcpMeshPlan& plan)
      : plan_(plan), result_(static_cast<std::size_t>(plan.ranks * plan.streams)) {}

  Error prepare();
  Error run();
  std::vector<Descriptor> take() { return std::move(result_); }

 private:
  bool used(int peer) const {
    return peer != plan_.rank && plan_.use[static_cast<std::size_t>(peer)] != 0;
  }
  std::size_t slot_of(int peer, int stream) const {
    const auto streams = static_cast<std::size_t>(plan_.streams);
    return static_cast<std::size_t>(peer) * streams + static_cast<std::size_t>(stream);
  }
  Descriptor& slot(int peer, int stream) { return result_[slot_of(peer, stream)]; }
  int poll_once();
  Error begin(Attempt& attempt);
  Error drive(Attempt& attempt);
  void accept_connections();
  bool drive(Pending& pending);
  bool keep(Pending& pending);
  Error starved(const Error& error) const;
  Error overdue() const;

  const TcpMeshPlan& plan_;
  std::vector<Descriptor> result_;
  std::vector<Attempt> attempts_;
  std::vector<Pending> pending_;
  std::vector<pollfd> polled_;
  std::size_t open_attempts_ = 0;  // attempts with a socket, which come first
  std::size_t missing_connections_ = 0;
  AcceptLimiter limiter_;
  Error accept_error_;  // the last one
};

Error Mesh::prepare() {
  for (int peer = 0; peer < plan_.ranks; ++peer) {
    if (!used(peer)) continue;
    if (peer > plan_.rank) {
      missing_connections_ += static_cast<std::size_t>(plan_.streams);
      continue;
    }
    Expected<Address> address = parse_address(plan_.addresses[static_cast<std::size_t>(peer)]);
    if (!address) return address.error();
    for (int stream = 0; stream < plan_.streams; ++stream) {
      Attempt attempt;
      attempt.address = *address;
      attempt.greeting = {purpose, plan_.rank, peer, plan_.ranks, stream};
      attempts_.push_back(std::move(attempt));
    }
  }
  if (missing_connections_ != 0 && plan_.listener < 0) {
    return Error(Code::invalid_usage, "a TCP rank must listen before others can connect to it");
  }
  return {};
}

Error Mesh::run() {
  while (!attempts_.empty() || missing_connections_ != 0) {
    if (plan_.patience.over()) return overdue();
    for (Attempt& attempt : attempts_) {
      if (attempt.socket || monotonic_ns() < attempt.not_before_ns) continue;
      if (Error error = begin(attempt)) return error;
    }
    if (poll_once() < 0 && errno != EINTR) return system_error("wait for connections", errno);
    // polled_ has the listener, then open attempts, then pending connections, as of poll_once().
    const std::size_t accepted = pending_.size();
    for (std::size_t i = 0; i < accepted; ++i) {
      const std::uint64_t age = monotonic_ns() - pending_[i].since_ns;
      const bool lasting = polled_[1 + open_attempts_ + i].revents == 0 || drive(pending_[i]);
      if (!lasting || age > AcceptLimiter::handshake_ns) pending_[i].socket.reset();
    }
    for (std::size_t i = 0; i < open_attempts_; ++i) {
      if (polled_[1 + i].revents == 0) continue;
      if (Error error = drive(attempts_[i])) return error;
    }
    std::erase_if(attempts_, [&](const Attempt& attempt) {
      return static_cast<bool>(slot(attempt.greeting.to, attempt.greeting.stream));
    });
    std::erase_if(pending_, [](const Pending& pending) { return !pending.socket; });
    if (polled_[0].revents != 0) accept_connections();
    if (Error error = starved(accept_error_)) return error;
  }
  return {};
}

int Mesh::poll_once() {
  const std::uint64_t now = monotonic_ns();
  std::uint64_t until = plan_.patience.deadline_ns;
  polled_.clear();
  if (missing_connections_ == 0) pending_.clear();
  // When full, new connections stay in the kernel's backlog until the oldest has had its time.
  if (!pending_.empty() &&
      now - pending_.front().since_ns > limiter_.stay_ns(pending_.size(), now)) {
    pending_.erase(pending_.begin());
  }
  const bool room = missing_connections_ != 0 && !limiter_.is_full(pending_.size(), now);
  if (now < limiter_.resumes_at_ns()) until = std::min(until, limiter_.resumes_at_ns());
  polled_.push_back({room ? plan_.listener : -1, POLLIN, 0});
  // poll() refuses more entries than the descriptor limit, so attempts without a socket come last.
  std::partition(attempts_.begin(), attempts_.end(),
                 [](const Attempt& attempt) { return static_cast<bool>(attempt.socket); });
  open_attempts_ = 0;
  for (const Attempt& attempt : attempts_) {
    if (!attempt.socket) {
      until = std::min(until, attempt.not_before_ns);
      continue;
    }
    ++open_attempts_;
    polled_.push_back({attempt.socket.get(), attempt.events, 0});
  }
  for (const Pending& pending : pending_) {
    polled_.push_back({pending.socket.get(), pending.events, 0});
    until = std::min(until, pending.since_ns + limiter_.stay_ns(pending_.size(), now));
  }
  return ::poll(polled_.data(), polled_.size(),
                std::min(timeout_ms(until), plan_.patience.nap_ms()));
}

// Waiting helps while unauthenticated connections hold descriptors, which they lose after a while.
Error Mesh::starved(const Error& error) const {
  if (!error || !pending_.empty() || !descriptors_are_used_up()) return {};
  return {error.code(), fmt::format("connect to the other ranks: {}", error.message())};
}

// Returns an error only where a retry would not help.
Error Mesh::begin(Attempt& attempt) {
  attempt.connected = false;
  attempt.events = POLLOUT;
  attempt.not_before_ns = monotonic_ns() + retry_ns;
  Expected<Descriptor> socket = begin_connect(attempt.address);
  if (socket) {
    attempt.socket = std::move(*socket);
  } else {
    attempt.last = socket.error();
  }
  return starved(attempt.last);
}

// Returns an error only where a retry would not help.
Error Mesh::drive(Attempt& attempt) {
  const int fd = attempt.socket.get();
  if (!attempt.connected) {
    attempt.last = connect_result(fd, attempt.address);
    if (attempt.last) {
      attempt.socket.reset();
      return {};
    }
    attempt.connected = true;
    attempt.handshake = Handshake::connector(plan_.secret, attempt.greeting);
  }
  Expected<Handshake::Want> want = attempt.handshake.step(fd);
  if (!want) {
    attempt.last =
        Error(want.error().code(),
              fmt::format("connect to rank {}: {}", attempt.greeting.to, want.error().message()),
              attempt.greeting.to);
    attempt.socket.reset();
    return attempt.handshake.refused() ? attempt.last : Error();
  }
  attempt.events = *want == Handshake::Want::write ? POLLOUT : POLLIN;
  if (*want == Handshake::Want::done) {
    slot(attempt.greeting.to, attempt.greeting.stream) = std::move(attempt.socket);
  }
  return {};
}

void Mesh::accept_connections() {
  while (!limiter_.is_full(pending_.size(), monotonic_ns())) {
    Expected<Descriptor> socket = accept_one(plan_.listener);
    if (!socket) {
      // No descriptors are left; unauthenticated connections may hold them, and time out.
      accept_error_ = socket.error();
      limiter_.pause(monotonic_ns());
      return;
    }
    if (!*socket) return;
    Pending pending;
    pending.socket = std::move(*socket);
    pending.since_ns = monotonic_ns();
    pending.handshake = Handshake::acceptor(
        plan_.secret, {purpose, Greeting::any, plan_.rank, plan_.ranks, Greeting::any});
    pending_.push_back(std::move(pending));
  }
}

// False: the connection is to be dropped.
bool Mesh::drive(Pending& pending) {
  Expected<Handshake::Want> want = pending.handshake.step(pending.socket.get());
  if (!want) return false;
  pending.events = *want == Handshake::Want::write ? POLLOUT : POLLIN;
  return *want != Handshake::Want::done || keep(pending);
}

bool Mesh::keep(Pending& pending) {
  const Greeting& greeting = pending.handshake.greeting();
  if (greeting.from <= plan_.rank || greeting.from >= plan_.ranks || !used(greeting.from) ||
      greeting.stream >= plan_.streams) {
    return false;
  }
  // A second connection replaces the first, which that rank must have given up.
  Descriptor& mine = slot(greeting.from, greeting.stream);
  if (!mine) --missing_connections_;
  mine = std::move(pending.socket);
  return true;
}

Error Mesh::overdue() const {
  if (!attempts_.empty()) {
    const Attempt& attempt = attempts_.front();
    const int peer = attempt.greeting.to;
    return Error(Code::remote,
                 fmt::format("rank {} could not be reached at {} in time ({})", peer,
                             plan_.addresses[static_cast<std::size_t>(peer)],
                             attempt.last ? attempt.last.message() : "no answer"),
                 peer);
  }
  for (int peer = plan_.rank + 1; peer < plan_.ranks; ++peer) {
    if (!used(peer)) continue;
    for (int stream = 0; stream < plan_.streams; ++stream) {
      if (result_[slot_of(peer, stream)]) continue;
      const std::string why =
          accept_error_ ? fmt::format(" ({})", accept_error_.message()) : std::string();
      return Error(Code::remote, fmt::format("rank {} has not connected in time{}", peer, why),
                   peer);
    }
  }
  return Error(Code::internal, "connections are missing");
}

}  // namespace

Expected<std::vector<Descriptor>> connect_mesh(const TcpMeshPlan& plan) {
  Mesh mesh(plan);
  if (Error error = mesh.prepare()) return error;
  if (Error error = mesh.run()) return error;
  return mesh.take();
}

}  // namespace pith
