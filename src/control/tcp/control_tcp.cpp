#include "control/tcp/control_tcp.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/clock.hpp"
#include "core/descriptor_limit.hpp"

namespace pith {

namespace {

constexpr const char* purpose = "control";
constexpr std::uint64_t handshake_ns = 30'000'000'000;  // of an accepted connection
constexpr std::size_t most_unauthenticated = 256;
// Before the oldest is dropped to make room.
constexpr std::uint64_t room_patience_ns = 1'000'000'000;
constexpr std::uint64_t accept_pause_ns = 100'000'000;  // after accept has failed
constexpr std::uint64_t close_turn_ns = 10'000'000;     // attempts to connect are repeated
constexpr const char* in_order = "in order";
constexpr const char* no_answer = "its host does not answer";
// Links are checked for silence this often in a heartbeat. After a quarter of one without checks
// the measurement starts anew, as earlier results say nothing of the time since.
constexpr std::uint64_t looks_per_heartbeat = 16;
constexpr std::uint64_t quarters = 4;

Expected<Descriptor> begin_connect_to(const std::string& text) {
  const Expected<Address> address = parse_address(text);
  if (!address) return address.error();
  return begin_connect(*address);
}

std::uint64_t from_now(double seconds) {
  return monotonic_ns() + static_cast<std::uint64_t>(seconds * 1e9);
}

// Null where the link ends with its connection.
std::unique_ptr<TcpResumption> resumption_with(int rank, const ControlTcpOptions& options,
                                               const std::vector<std::string>& addresses) {
  const std::string& own = addresses[static_cast<std::size_t>(options.rank)];
  const std::string& other = addresses[static_cast<std::size_t>(rank)];
  if (!outlives_connections(options.reconnect, own, other)) return nullptr;
  return std::make_unique<TcpResumption>();
}

// To a rank that wants to go on with a link that is no more.
void say_farewell(const Descriptor& connection) {
  const TcpResumption::Greeting farewell = TcpResumption::farewell();
  static_cast<void>(send_all(connection.get(), farewell, monotonic_ns()));
}

}  // namespace

Expected<std::string> ControlTcp::listen(const std::string& host) {
  Expected<Descriptor> listener = listen_on(host, options_.ports);
  if (!listener) return listener.error();
  const Expected<Address> address = local_address(listener->get());
  if (!address) return address.error();
  listener_ = std::move(*listener);
  events_ = Descriptor(open_with_room([] { return ::epoll_create1(EPOLL_CLOEXEC); }));
  if (!events_) return system_error("create an epoll descriptor", errno);
  epoll_event event{};
  event.events = EPOLLIN;
  if (::epoll_ctl(events_.get(), EPOLL_CTL_ADD, listener_.get(), &event) != 0) {
    return system_error("watch the control listener", errno);
  }
  observers_.set_address(format_address(*address));
  return observers_.address();
}

void ControlTcp::watch(Link& link, bool added) {
  if (!link.fd) return;
  const bool wanted = link.wants_to_write();
  if (!added && wanted == link.writing) return;
  link.writing = wanted;
  epoll_event event{};
  event.events = static_cast<std::uint32_t>(wanted ? EPOLLIN | EPOLLOUT : EPOLLIN);
  ::epoll_ctl(events_.get(), added ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, link.fd.get(), &event);
}

void ControlTcp::send(int to, std::string message) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(links_.begin(), links_.end(), [to](const Link& link) {
    return link.rank == to && !link.leaving && link.ended.empty();
  });
  if (found == links_.end()) return dial(to, std::move(message));
  append_control_frame(found->out, message);
  found->write();
  watch(*found, false);
}

ControlTcp::Link* ControlTcp::connect_to(int rank, std::list<Link>& links) {
  Expected<Descriptor> socket = begin_connect_to(addresses_[static_cast<std::size_t>(rank)]);
  if (!socket) {
    late_.emplace_back([rank, how = std::string(socket.error().message())](
                           ControlHandler& handler) { handler.on_unreachable(rank, how); });
    return nullptr;
  }
  Link& link = links.emplace_back();
  link.rank = rank;
  link.fd = std::move(*socket);
  link.state = State::connecting;
  link.deadline_ns = from_now(options_.heartbeat_s);
  watch(link, true);
  return &link;
}

void ControlTcp::probe(int rank) {
  const std::lock_guard lock(mutex_);
  const auto asked = [rank](const Link& link) { return link.rank == rank; };
  if (std::none_of(probes_.begin(), probes_.end(), asked)) connect_to(rank, probes_);
}

void ControlTcp::dial(int rank, std::string first) {
  if (rank > options_.rank) return;  // the higher rank connects
  Link* link = connect_to(rank, links_);
  if (!link) return;
  link->number = next_number_++ % ControlPurpose::links;
  const ControlPurpose begins{ControlPurpose::What::begins, link->number};
  link->handshake = Handshake::connector(
      options_.secret, {purpose, options_.rank, rank, options_.ranks, begins.stream()});
  link->resumption = resumption_with(rank, options_, addresses_);
  append_control_frame(link->out, first);
  keep_alive(link->fd.get(), options_.heartbeat_s);
}

// The higher rank connects, so the lower one asks it to.
bool ControlTcp::dial_again(Link& link) {
  Expected<Descriptor> socket = begin_connect_to(addresses_[static_cast<std::size_t>(link.rank)]);
  if (!socket) return false;
  const ControlPurpose::What what =
      link.rank < options_.rank ? ControlPurpose::What::goes_on : ControlPurpose::What::asks;
  const int stream = ControlPurpose{what, link.number}.stream();
  link.fd = std::move(*socket);
  link.state = State::connecting;
  link.handshake = Handshake::connector(
      options_.secret, {purpose, options_.rank, link.rank, options_.ranks, stream});
  keep_alive(link.fd.get(), options_.heartbeat_s);
  watch(link, true);
  return true;
}

void ControlTcp::hang_up(int rank) {
  const std::lock_guard lock(mutex_);
  // One that is not open yet must not open after a later one.
  links_.remove_if([rank](const Link& link) {
    return link.rank == rank && link.state != State::open && !link.suspended();
  });
  for (Link& link : links_) {
    if (link.rank != rank || link.leaving) continue;
    append_goodbye(link.out);
    link.leaving = true;
    link.write();
    watch(link, false);
  }
}

// A rank authenticates at once, so the oldest connection is the least likely to be a rank's.
bool ControlTcp::has_room() {
  if (monotonic_ns() < accepts_again_ns_) return false;
  if (unauthenticated_.size() < most_unauthenticated) return true;
  const std::uint64_t since_ns = unauthenticated_.front().deadline_ns - handshake_ns;
  if (monotonic_ns() < since_ns + room_patience_ns) return false;
  unauthenticated_.pop_front();
  return true;
}

// Without room, connections wait in the kernel's backlog. The listener is not watched then, for it
// would keep the thread awake.
void ControlTcp::listen_while_room() {
  const bool wanted = has_room();
  if (wanted == listens_) return;
  listens_ = wanted;
  epoll_event event{};
  event.events = wanted ? static_cast<std::uint32_t>(EPOLLIN) : 0;
  ::epoll_ctl(events_.get(), EPOLL_CTL_MOD, listener_.get(), &event);
}

void ControlTcp::accept_connections() {
  for (std::size_t i = 0; i < most_unauthenticated && has_room(); ++i) {
    Expected<Descriptor> accepted = accept_one(listener_.get());
    if (!accepted) accepts_again_ns_ = monotonic_ns() + accept_pause_ns;  // out of descriptors
    if (!accepted || !*accepted) return;
    Link& link = unauthenticated_.emplace_back();
    link.fd = std::move(*accepted);
    link.deadline_ns = monotonic_ns() + handshake_ns;
    link.handshake = Handshake::acceptor(
        options_.secret, {purpose, Greeting::any, options_.rank, Greeting::any, Greeting::any});
    watch(link, true);
  }
}

// A second connection from a rank replaces the first, which that rank must have given up. Only
// higher ranks connect, and observers.
void ControlTcp::adopt(std::list<Link>::iterator caller, News& news) {
  const Greeting& greeting = caller->handshake.greeting();
  const int from = greeting.from;
  const int of = greeting.ranks;
  if (from == observer && of == observer) observers_.add(std::move(caller->fd), monotonic_ns());
  const bool is_member = from < options_.ranks && from != options_.rank && of == options_.ranks;
  const ControlPurpose what = ControlPurpose::of(greeting.stream);
  if (is_member && what.what != ControlPurpose::What::begins) return go_on(caller, news);
  if (!is_member || from < options_.rank) {
    unauthenticated_.erase(caller);
    return;
  }
  caller->rank = from;
  caller->number = what.link;
  links_.remove_if([&](const Link& link) { return link.rank == caller->rank; });
  keep_alive(caller->fd.get(), options_.heartbeat_s);
  caller->resumption = resumption_with(from, options_, addresses_);
  links_.splice(links_.end(), unauthenticated_, caller);
}

// The rank has found that its link is broken, and brings another connection or asks for one. What
// the old one has brought is read first: the rank need not have it any more.
void ControlTcp::go_on(std::list<Link>::iterator caller, News& news) {
  const int from = caller->handshake.greeting().from;
  const ControlPurpose what = ControlPurpose::of(caller->handshake.greeting().stream);
  Descriptor connection = std::move(caller->fd);
  unauthenticated_.erase(caller);
  const bool brings = what.what == ControlPurpose::What::goes_on;
  if (brings != (from > options_.rank)) return;
  const auto found = std::ranges::find_if(links_, [&](const Link& link) {
    return link.rank == from && link.number == what.link && link.resumption && link.ended.empty();
  });
  if (found == links_.end()) return say_farewell(connection);
  if (found->state == State::open) read(*found, news);
  if (!found->ended.empty()) return;
  if (found->state == State::open) found->suspend(0, from_now(options_.heartbeat_s));
  if (!brings) return;  // step() dials
  keep_alive(connection.get(), options_.heartbeat_s);
  found->resume(std::move(connection));
  found->writing = false;  // as it was accepted
  watch(*found, false);
}

// Whether the TCP connection is established; ends the link if it cannot be.
bool ControlTcp::connected(Link& link) {
  pollfd ready{link.fd.get(), POLLOUT, 0};
  if (::poll(&ready, 1, 0) == 0) return false;
  int cause = 0;
  socklen_t size = sizeof cause;
  ::getsockopt(link.fd.get(), SOL_SOCKET, SO_ERROR, &cause, &size);
  if (cause == 0) return true;
  if (!link.suspended()) {
    link.end(fmt::format("cannot be reached ({})", std::strerror(cause)));
  } else if (cause == ECONNREFUSED) {
    ended(link, link.resumption->cause());
  } else {
    link.try_again();
  }
  return false;
}

void ControlTcp::shake(Link& link) {
  if (link.state == State::connecting) {
    if (!connected(link)) return;
    link.state = State::shaking;
    if (!link.suspended()) link.deadline_ns = from_now(options_.handshake_s);
  }
  const Expected<Handshake::Want> want = link.handshake.step(link.fd.get());
  if (!want && link.suspended() && !link.handshake.refused()) return link.try_again();
  if (!want) return link.end(want.error().message());
  link.handshake_writes = *want == Handshake::Want::write;
  if (*want != Handshake::Want::done) return;
  if (!link.suspended()) {
    link.state = State::open;
  } else if (link.rank > options_.rank) {
    link.state = State::asking;
  } else {
    link.resume(std::move(link.fd));
  }
}

// The connection: errno, or 0.
void ControlTcp::ended(Link& link, int cause) {
  // Its goodbye may have been lost, so this tells no death; if it thinks us dead, others tell us.
  if (link.dismissed()) return link.end(in_order);
  if (link.fault()) return link.end(fmt::format("it sent {}", link.fault()));
  if (is_silence(cause)) return link.end(no_answer);
  if (link.leaving && link.out.empty() && cause == 0) return link.end(in_order);
  // No router ends a connection in order, so most likely its process has ended, and its address may
  // answer nothing any more.
  constexpr double orderly_s = 2;
  const double heartbeat_s = options_.heartbeat_s;
  const double patience_s = cause == 0 ? std::min(orderly_s, heartbeat_s) : heartbeat_s;
  if (link.suspend(cause, from_now(patience_s))) return;
  link.end(cause == 0 ? "its process has ended"
                      : fmt::format("its process has ended ({})", std::strerror(cause)));
}

void ControlTcp::read(Link& link, News& news) {
  char buffer[16384];
  while (link.ended.empty()) {
    const ssize_t got = link.receive(buffer, sizeof buffer);
    if (got == 0) return ended(link, 0);
    if (got < 0) {
      if (would_block(errno)) return;
      return ended(link, errno);
    }
    link.in.arrived({buffer, static_cast<std::size_t>(got)});
    take_messages(link, news);
  }
}

void ControlTcp::take_messages(Link& link, News& news) {
  std::string_view message;
  while (true) {
    switch (link.in.next(message)) {
      case ControlFrames::What::nothing:
        return;
      case ControlFrames::What::goodbye:
        return link.end(in_order);
      case ControlFrames::What::too_long:
        return link.end("it sent a control message that is too long");
      case ControlFrames::What::message:
        link.heard = true;
        news.emplace_back([rank = link.rank, text = std::string(message)](ControlHandler& handler) {
          handler.on_message(rank, text);
        });
    }
  }
}

// Does what can be done for a link that is not open.
void ControlTcp::establish(Link& link) {
  if (link.state == State::broken && monotonic_ns() >= link.not_before_ns && !dial_again(link)) {
    link.try_again();
  }
  if (link.state == State::asking) {  // its end means that it must be asked again
    char byte;
    const ssize_t got = ::recv(link.fd.get(), &byte, 1, 0);
    if (got > 0) return link.end(in_order);  // a farewell, see ended()
    if (got == 0 || !would_block(errno)) link.try_again();
  }
  if (link.state == State::connecting || link.state == State::shaking) shake(link);
}

void ControlTcp::step(Link& link, News& news) {
  establish(link);
  if (link.state == State::open && link.rank >= 0) {
    if (link.ended.empty()) read(link, news);
    if (link.ended.empty()) link.write();
    // At once after a break: where nobody listens any more, that is a death.
    if (link.ended.empty()) establish(link);
  }
  if (!link.ended.empty()) return;
  if (link.has_left()) return link.end(in_order);
  if (link.state != State::open && monotonic_ns() > link.deadline_ns) {
    return link.end("does not answer");
  }
  watch(link, false);
}

// Tells the handler of the end of a connection that this rank did not close itself.
void ControlTcp::tell_end(const Link& link, News& news) {
  if (link.ended.empty() || link.leaving) return;
  news.emplace_back(
      [rank = link.rank, heard = link.heard, how = link.ended](ControlHandler& handler) {
        if (how == in_order) return handler.on_hung_up(rank);
        // A rank that leaves may close a connection that it has just begun: that alone is no death.
        heard ? handler.on_lost(rank, how) : handler.on_unreachable(rank, how);
      });
}

// Checks for silence, as TcpTransport does on data links. The deadline of a handshake is long, so a
// host that vanishes during one must be detected here.
void ControlTcp::look_at_links() {
  const std::uint64_t now_ns = monotonic_ns();
  if (now_ns < next_look_ns_) return;
  const auto heartbeat_ns = static_cast<std::uint64_t>(options_.heartbeat_s * 1e9);
  const bool anew = now_ns - next_look_ns_ > heartbeat_ns / quarters;
  next_look_ns_ = now_ns + heartbeat_ns / looks_per_heartbeat;
  for (Link& link : links_) {
    if (!link.ended.empty() || link.state == State::connecting || !link.fd) continue;
    if (anew) link.silence = TcpSilence();
    const std::uint64_t silent_ns = link.silence.look(answers_of(link.fd.get()), now_ns);
    if (silent_ns >= heartbeat_ns) link.end(no_answer);
    if (!link.resumption) continue;
    link.resumption->rest([&] { return unacknowledged_bytes(link.fd.get()); });
  }
}

void ControlTcp::step_all(News& news) {
  accept_connections();
  for (auto caller = unauthenticated_.begin(); caller != unauthenticated_.end();) {
    const auto next = std::next(caller);
    step(*caller, news);
    if (!caller->ended.empty()) {
      unauthenticated_.erase(caller);
    } else if (caller->state == State::open) {
      adopt(caller, news);
    }
    caller = next;
  }
  listen_while_room();
  for (Link& link : links_) {
    if (link.ended.empty()) step(link, news);
  }
}

void ControlTcp::progress(ControlHandler& handler) {
  News news;
  {
    const std::lock_guard lock(mutex_);
    news.swap(late_);
    step_all(news);
    look_at_links();
    for (const Link& link : links_) tell_end(link, news);
    links_.remove_if([](const Link& link) { return !link.ended.empty(); });
    for (Link& link : probes_) {
      if (connected(link)) {
        link.end(in_order);
        continue;
      }
      if (link.ended.empty() && monotonic_ns() > link.deadline_ns) link.end("does not answer");
      if (!link.ended.empty()) tell_end(link, news);
    }
    probes_.remove_if([](const Link& link) { return !link.ended.empty(); });
  }
  observers_.turn(monotonic_ns());
  for (const auto& tell : news) tell(handler);
}

void ControlTcp::close(std::uint64_t deadline_ns) {
  const std::lock_guard lock(mutex_);
  links_.remove_if([](const Link& link) { return link.state != State::open && !link.suspended(); });
  for (Link& link : links_) {
    if (!std::exchange(link.leaving, true)) append_goodbye(link.out);
  }
  const auto remains = [](const Link& link) { return link.leaving && link.ended.empty(); };
  News untold;
  while (std::ranges::any_of(links_, remains)) {
    step_all(untold);
    if (monotonic_ns() >= deadline_ns) break;
    if (std::ranges::none_of(links_, remains)) break;
    wait_for(events_.get(), POLLIN, std::min(deadline_ns, monotonic_ns() + close_turn_ns));
  }
  for (const Link& link : links_) {
    // Closing a socket with unread data makes the kernel drop what is still to be sent.
    char unread[4096];
    while (::recv(link.fd.get(), unread, sizeof unread, MSG_DONTWAIT) > 0) {
    }
  }
  links_.clear();
  probes_.clear();
  unauthenticated_.clear();
  observers_.close();
  listener_.reset();
}

}  // namespace pith
