#include "transport/tcp/tcp_mesh.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "core/descriptor_limit.hpp"
#include "transport/peer_transport.hpp"
#include "transport/tcp/tcp_address.hpp"
#include "transport/tcp/tcp_silence.hpp"

namespace pith {
namespace {

constexpr std::uint64_t ms = 1'000'000;
constexpr std::uint64_t retry_ns = 20 * ms;
// Between two looks at all connections, of which there may be thousands.
constexpr std::uint64_t look_ns = 2 * ms;
constexpr std::uint64_t pause_ns = 1000 * ms;

// Ends that disagree about encryption do not take each other for peers.
const char* purpose_of(const TcpMeshPlan& plan) {
  return plan.encrypt ? "pith-encrypted" : "pith-data";
}

Descriptor open_spare() {
  return Descriptor(open_with_room([] { return ::eventfd(0, EFD_CLOEXEC); }));
}

// How long a peer may be silent before it is given up. Where it is connected to for the first time,
// longer than a heartbeat, within which the control plane judges it: a kernel drops attempts where
// many wait for a rank that is in no call, and repeats one after 1 s, then 2.
double patience_s(double heartbeat_s, bool was_open) {
  return was_open ? heartbeat_s : std::max(4.0, 3 * heartbeat_s);
}

// Until the streams carry messages, what is in flight may wait for no reader, so the kernel may
// judge it (see tcp_silence.hpp). 0: it does not.
void end_when_unanswered(int fd, double limit_s) {
  const auto limit_ms = static_cast<unsigned>(std::min(limit_s * 1e3, 1e9));
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms, sizeof limit_ms);
}

// At most until the next attempt is due.
void wait_for_step(int epoll, const Patience& patience) {
  constexpr int retry_ms = static_cast<int>(retry_ns / ms);
  pollfd entry{epoll, POLLIN, 0};
  ::poll(&entry, 1, std::min(patience.nap_ms(), retry_ms));
}

Error starved(const Error& error) {
  return {error.code(), fmt::format("connect to the other ranks: {}", error.message())};
}

}  // namespace

struct TcpMesh::Connection {
  enum class State : std::uint8_t { waiting, connecting, greeting, ready, ended };

  State state = State::waiting;
  bool ours = false;  // this rank connects
  int peer = -1;      // of accepted ones known once they are ready
  int stream = 0;
  Descriptor socket;
  Handshake handshake;
  std::uint32_t events = 0;         // watched by epoll; 0: none
  std::uint64_t since_ns = 0;       // accepted, or of the first attempt without an answer; 0: none
  std::uint64_t closed_ns = 0;      // when the peer has first closed it; 0: it has not
  std::uint64_t ready_ns = 0;       // the last time
  std::uint64_t not_before_ns = 0;  // the next attempt
  Error last;                       // why the last attempt has failed

  std::string_view address(const TcpMeshPlan& plan) const {
    return rail_of(plan.addresses[static_cast<std::size_t>(peer)], stream, plan.rails);
  }

  void watch(int epoll, std::uint32_t wanted) {
    if (events == wanted) return;
    const int operation = events == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
    epoll_event event{};
    event.events = events = wanted;
    event.data.ptr = this;
    ::epoll_ctl(epoll, operation, socket.get(), &event);
  }
};

TcpMesh::TcpMesh(TcpMeshPlan plan, Descriptor listener)
    : plan_(std::move(plan)),
      listener_(std::move(listener)),
      links_(static_cast<std::size_t>(plan_.ranks)) {
  for (int peer = 0; peer < plan_.ranks; ++peer) {
    link(peer).open = peer == plan_.rank || plan_.streams_to(peer) == 0;
    if (!link(peer).open) ++closed_links_;
  }
}

TcpMesh::~TcpMesh() = default;

// --- start-up -----------------------------------------------------------------------------------

Error TcpMesh::prepare() {
  epoll_ = Descriptor(open_with_room([] { return ::epoll_create1(EPOLL_CLOEXEC); }));
  if (!epoll_) return system_error("create an epoll descriptor", errno);
  if (!listener_) return {};
  spare_ = open_spare();
  epoll_event event{};
  event.events = listening_ = EPOLLIN;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener_.get(), &event) == 0) return {};
  return system_error("watch a listener", errno);
}

Error TcpMesh::connect(std::span<const std::uint8_t> now, const Patience& patience) {
  if (Error error = prepare()) return error;
  starting_ = true;
  for (int peer = 0; peer < plan_.ranks; ++peer) {
    if (now[static_cast<std::size_t>(peer)] == 0 || link(peer).open) continue;
    if (peer < plan_.rank) want(peer);
    if (peer > plan_.rank && !listener_) {
      return {Code::invalid_usage, "a TCP rank must listen before others can connect to it"};
    }
  }
  const auto missing = [&](const Link& one) {
    return !one.open && now[static_cast<std::size_t>(&one - links_.data())] != 0;
  };
  while (std::ranges::any_of(links_, missing)) {
    if (patience.over()) return overdue(now);
    wait_for_step(epoll_.get(), patience);
    step();
    if (!news_.failed.empty()) return news_.failed.front().error;
    if (accept_error_ && unauthenticated_ == 0 && descriptors_are_used_up()) {
      return starved(accept_error_);
    }
  }
  starting_ = false;
  return {};
}

Error TcpMesh::overdue(std::span<const std::uint8_t> now) const {
  for (const Connection& connection : connections_) {
    if (!connection.ours || connection.state == Connection::State::ready) continue;
    const int peer = connection.peer;
    return {Code::remote,
            fmt::format("rank {} could not be reached at {} in time ({})", peer,
                        connection.address(plan_),
                        connection.last ? connection.last.message() : "no answer"),
            peer};
  }
  for (int peer = 0; peer < plan_.ranks; ++peer) {
    const auto p = static_cast<std::size_t>(peer);
    if (now[p] == 0 || links_[p].open) continue;
    const std::string why =
        accept_error_ ? fmt::format(" ({})", accept_error_.message()) : std::string();
    return {Code::remote, fmt::format("rank {} has not connected in time{}", peer, why), peer};
  }
  return {Code::internal, "connections are missing"};
}

// --- what goes on all the time ------------------------------------------------------------------

void TcpMesh::want(int peer) {
  Link& wanted = link(peer);
  if (wanted.open || wanted.failed || wanted.wanted) return;
  const int first = peer < plan_.rank ? 0 : plan_.streams_to(peer);
  const int end = std::max(first + 1, plan_.streams_to(peer));
  std::list<Connection> attempts;
  for (int stream = first; stream < end; ++stream) {
    Connection& attempt = attempts.emplace_back();
    attempt.ours = true;
    attempt.peer = peer;
    attempt.stream = stream;
  }
  connections_.splice(connections_.end(), attempts);
  wanted.wanted = true;
  next_look_ns_ = 0;
}

bool TcpMesh::reopen(int peer, int stream) {
  if (!link(peer).open || link(peer).failed) return false;
  const int number = peer < plan_.rank ? stream : plan_.request_of(peer, stream);
  const auto is_same = [&](const Connection& one) {
    return one.ours && one.peer == peer && one.stream == number &&
           one.state != Connection::State::ended;
  };
  const auto is_done = [&](const Reopened& one) {
    return one.peer == peer && one.stream == stream;
  };
  if (std::ranges::any_of(news_.reopened, is_done) || std::ranges::any_of(connections_, is_same)) {
    return true;
  }
  Connection& attempt = connections_.emplace_back();
  attempt.ours = true;
  attempt.peer = peer;
  attempt.stream = number;
  attempt.not_before_ns = link(peer).reopened_ns + retry_ns;
  next_look_ns_ = 0;
  return true;
}

bool TcpMesh::step() {
  epoll_event events[64];
  const int count = ::epoll_wait(epoll_.get(), events, 64, 0);
  for (int i = 0; i < count; ++i) {
    if (events[i].data.ptr == nullptr) {
      accept_connections();
    } else {
      drive(*static_cast<Connection*>(events[i].data.ptr));
    }
  }
  if (const std::uint64_t now = monotonic_ns(); now >= next_look_ns_) {
    next_look_ns_ = now + look_ns;
    // No look for a while, or this machine stood still: what is unanswered says nothing.
    const bool anew = now - std::exchange(looked_ns_, now) > pause_ns;
    begin_due(now, anew);
    drop_slow(now, anew);
    listen_while_room(now);
  }
  // Only here, because events of this turn refer to connections.
  connections_.remove_if(
      [](const Connection& one) { return one.state == Connection::State::ended; });
  return !news_.opened.empty() || !news_.reopened.empty() || !news_.failed.empty();
}

void TcpMesh::begin_due(std::uint64_t now, bool anew) {
  using State = Connection::State;
  for (Connection& one : connections_) {
    if (!one.ours || (one.state != State::waiting && one.state != State::connecting)) continue;
    for (std::uint64_t* since_ns : {&one.since_ns, &one.closed_ns}) {
      if (anew && *since_ns != 0) *since_ns = now;
    }
    // A request waits while the peer opens streams anyway.
    const bool waits = one.stream == plan_.streams_to(one.peer) && link(one.peer).ready > 0;
    if (one.state == State::waiting && now >= one.not_before_ns && !waits) begin(one, now);
    const double limit_s = patience_s(plan_.heartbeat_s, link(one.peer).open);
    const auto limit_ns = static_cast<std::uint64_t>(limit_s * 1e9);
    const auto too_long = [&](std::uint64_t since_ns) {
      return !starting_ && since_ns != 0 && now > since_ns + limit_ns;
    };
    if (too_long(one.since_ns)) fail(one.peer, Failed::How::unreachable, one.last);
    if (too_long(one.closed_ns)) fail(one.peer, Failed::How::refused, one.last);
  }
}

void TcpMesh::begin(Connection& connection, std::uint64_t now) {
  if (connection.since_ns == 0) connection.since_ns = now;
  const Expected<Address> address = parse_address(connection.address(plan_));
  if (!address) return fail(connection.peer, Failed::How::refused, address.error());
  Expected<Descriptor> socket = begin_connect(*address);
  if (!socket) return try_again(connection, socket.error());
  end_when_unanswered(socket->get(), patience_s(plan_.heartbeat_s, link(connection.peer).open));
  keep_alive(socket->get(), plan_.heartbeat_s);
  connection.socket = std::move(*socket);
  connection.state = Connection::State::connecting;
  connection.watch(epoll_.get(), EPOLLOUT);
}

void TcpMesh::drive(Connection& connection) {
  switch (connection.state) {
    case Connection::State::connecting:
      return check_connected(connection);
    case Connection::State::greeting:
      return shake_hands(connection);
    case Connection::State::ready:
      return closed_early(connection);
    case Connection::State::waiting:
    case Connection::State::ended:
      return;
  }
}

// A ready connection has ended before all of its link were ready at this end. The peer may have
// seen all, sent what it had to send, and left: its messages count.
void TcpMesh::closed_early(Connection& connection) {
  std::byte first;
  const int fd = connection.socket.get();
  if (connection.ours && ::recv(fd, &first, 1, MSG_PEEK | MSG_DONTWAIT) > 0) {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
    connection.events = 0;
    return;
  }
  if (!connection.ours) return end(connection);
  // A peer that kept it for so long has not refused it.
  if (monotonic_ns() > connection.ready_ns + pause_ns) connection.closed_ns = 0;
  try_again(connection,
            Error(Code::remote, fmt::format("rank {} has closed the connection", connection.peer),
                  connection.peer));
}

void TcpMesh::check_connected(Connection& connection) {
  const int peer = connection.peer;
  if (const int status = connect_status(connection.socket.get())) {
    const Error why = system_error(fmt::format("connect to {}", connection.address(plan_)), status);
    // Every rank listens from before the start-up on, until it leaves.
    if (status == ECONNREFUSED && !starting_) {
      return fail(peer, Failed::How::gone, why);
    }
    return try_again(connection, why);
  }
  connection.since_ns = 0;
  connection.state = Connection::State::greeting;
  connection.handshake = Handshake::connector(
      plan_.secret, {purpose_of(plan_), plan_.rank, peer, plan_.ranks, connection.stream});
  shake_hands(connection);
}

void TcpMesh::shake_hands(Connection& connection) {
  const Expected<Handshake::Want> want = connection.handshake.step(connection.socket.get());
  if (want && *want == Handshake::Want::done) {
    return connection.ours ? become_ready(connection) : keep(connection);
  }
  if (want) {
    return connection.watch(epoll_.get(), *want == Handshake::Want::write ? EPOLLOUT : EPOLLIN);
  }
  if (!connection.ours) return end(connection);
  const int peer = connection.peer;
  const Error why(want.error().code(),
                  fmt::format("connect to rank {}: {}", peer, want.error().message()), peer);
  if (connection.handshake.refused()) return fail(peer, Failed::How::refused, why);
  try_again(connection, why);
}

void TcpMesh::accept_connections() {
  while (!limiter_.is_full(unauthenticated_, monotonic_ns())) {
    Expected<Descriptor> socket = accept_one(listener_.get());
    if (!socket) {
      accept_error_ = socket.error();
      // Who connects must hear of it, so one more is accepted.
      if (std::exchange(spare_, Descriptor())) continue;
      // Unauthenticated connections may hold the descriptors, and time out.
      return limiter_.pause(monotonic_ns());
    }
    if (!*socket) return;
    Connection& accepted = connections_.emplace_back();
    ++unauthenticated_;
    accepted.state = Connection::State::greeting;
    accepted.socket = std::move(*socket);
    accepted.since_ns = monotonic_ns();
    accepted.handshake = Handshake::acceptor(
        plan_.secret, {purpose_of(plan_), Greeting::any, plan_.rank, plan_.ranks, Greeting::any});
    accepted.watch(epoll_.get(), EPOLLIN);
  }
}

// When there are too many, they have less time; others wait in the kernel's backlog.
void TcpMesh::drop_slow(std::uint64_t now, bool anew) {
  const std::uint64_t stay_ns = limiter_.stay_ns(unauthenticated_, now);
  for (Connection& one : connections_) {
    if (one.ours || one.state != Connection::State::greeting) continue;
    if (anew) one.since_ns = now;
    if (now > one.since_ns + stay_ns) end(one);
  }
}

void TcpMesh::listen_while_room(std::uint64_t now) {
  if (!listener_) return;
  if (!spare_ && unauthenticated_ == 0) spare_ = open_spare();
  const std::uint32_t wanted = limiter_.is_full(unauthenticated_, now) ? 0u : EPOLLIN;
  if (wanted == listening_) return;
  epoll_event event{};
  event.events = listening_ = wanted;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), &event);
}

// --- connections that have proved the secret ----------------------------------------------------

bool TcpMesh::may_keep(const Greeting& greeting) const {
  if (greeting.from == plan_.rank || greeting.from >= plan_.ranks) return false;
  const Link& to = links_[static_cast<std::size_t>(greeting.from)];
  const int streams = plan_.streams_to(greeting.from);
  if (to.failed || (to.open && !plan_.resumes_with(greeting.from))) return false;
  if (to.open && greeting.from < plan_.rank) {
    return greeting.stream > streams && greeting.stream <= 2 * streams;
  }
  return greeting.from > plan_.rank ? greeting.stream < streams : greeting.stream == streams;
}

void TcpMesh::keep(Connection& connection) {
  const Greeting& greeting = connection.handshake.greeting();
  if (!may_keep(greeting)) return end(connection);
  // A second connection replaces the first, which that rank must have given up.
  for (Connection& one : connections_) {
    const bool same = one.peer == greeting.from && one.stream == greeting.stream && !one.ours;
    if (same && one.state == Connection::State::ready) end(one);
  }
  --unauthenticated_;
  keep_alive(connection.socket.get(), plan_.heartbeat_s);
  connection.peer = greeting.from;
  connection.stream = greeting.stream;
  become_ready(connection);
  if (link(greeting.from).open) return;
  if (greeting.from < plan_.rank) want(greeting.from);
  if (!spare_ && unauthenticated_ == 0) spare_ = open_spare();
  if (!spare_ && unauthenticated_ == 0) {
    fail(greeting.from, Failed::How::refused, starved(accept_error_));
  }
}

void TcpMesh::become_ready(Connection& connection) {
  connection.state = Connection::State::ready;
  connection.ready_ns = monotonic_ns();
  connection.watch(epoll_.get(), EPOLLRDHUP);
  const int peer = connection.peer;
  if (link(peer).open) return replace(connection);
  if (connection.stream < plan_.streams_to(peer) && ++link(peer).ready == plan_.streams_to(peer))
    finish(peer);
}

void TcpMesh::finish(int peer) {
  const auto streams = static_cast<std::size_t>(plan_.streams_to(peer));
  Opened opened{peer, std::vector<Descriptor>(streams), {}};
  if (plan_.encrypt) opened.keys.resize(streams);
  for (Connection& one : connections_) {
    if (one.peer != peer || one.state == Connection::State::ended) continue;
    if (one.state == Connection::State::ready && one.stream < plan_.streams_to(peer)) {
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, one.socket.get(), nullptr);
      end_when_unanswered(one.socket.get(), 0);
      const auto stream = static_cast<std::size_t>(one.stream);
      if (plan_.encrypt) opened.keys[stream] = one.handshake.keys();
      opened.streams[stream] = std::move(one.socket);
    }
    end(one);
  }
  link(peer).open = true;
  --closed_links_;
  news_.opened.push_back(std::move(opened));
}

// Of an open link: the connection takes the place of an earlier one, or asks for one that does.
void TcpMesh::replace(Connection& connection) {
  const int peer = connection.peer;
  const int stream = connection.stream;
  if (stream >= plan_.streams_to(peer)) {
    if (!connection.ours) reopen(peer, stream - plan_.request_of(peer, 0));
    return;
  }
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection.socket.get(), nullptr);
  end_when_unanswered(connection.socket.get(), 0);
  ConnectionKeys keys;
  if (plan_.encrypt) keys = connection.handshake.keys();
  link(peer).reopened_ns = monotonic_ns();
  news_.reopened.push_back({peer, stream, std::move(connection.socket), keys});
  for (Connection& one : connections_) {
    const bool same = one.stream == stream || one.stream == plan_.request_of(peer, stream);
    if (one.peer == peer && same) end(one);
  }
}

// --- ends ---------------------------------------------------------------------------------------

void TcpMesh::try_again(Connection& connection, const Error& why) {
  const int peer = connection.peer;
  end(connection);
  connection.state = Connection::State::waiting;
  connection.not_before_ns = monotonic_ns() + retry_ns;
  connection.last = why;
  // It has answered, as since_ns tells, and closed: perhaps this one, perhaps all.
  if (connection.since_ns == 0 && connection.closed_ns == 0) connection.closed_ns = monotonic_ns();
  // Waiting helps while unauthenticated connections hold descriptors, which they lose after a
  // while. Attempts to mend an open link have a limit of time, in which others may free some.
  if (!link(peer).open && unauthenticated_ == 0 && descriptors_are_used_up()) {
    fail(peer, Failed::How::refused, starved(why));
  }
}

void TcpMesh::end(Connection& connection) {
  using State = Connection::State;
  if (connection.state == State::ended) return;
  if (connection.state == State::greeting && !connection.ours) --unauthenticated_;
  const bool counts = connection.state == State::ready && connection.peer >= 0 &&
                      !link(connection.peer).open &&
                      connection.stream < plan_.streams_to(connection.peer);
  if (counts) --link(connection.peer).ready;
  connection.state = State::ended;
  if (!connection.socket) return;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection.socket.get(), nullptr);
  connection.socket.reset();
  connection.events = 0;
}

void TcpMesh::fail(int peer, Failed::How how, const Error& why) {
  if (link(peer).open && !plan_.resumes_with(peer)) return;
  if (std::exchange(link(peer).failed, true)) return;
  if (!link(peer).open) --closed_links_;
  for (Connection& one : connections_) {
    if (one.peer == peer) end(one);
  }
  news_.failed.push_back({peer, how, why});
}

}  // namespace pith
