#include "transport/shm/shm_attach.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "core/clock.hpp"
#include "core/descriptor_limit.hpp"
#include "crypto/random_bytes.hpp"
#include "transport/shm/abstract_name.hpp"

namespace pith {

namespace {

constexpr std::size_t fds_max = 3;
constexpr std::uint64_t retry_ns = 20'000'000;
// Dialled at the same time: each takes a descriptor, and few ranks keep theirs in a large job.
constexpr std::size_t most_dialled = 16;
constexpr std::uint64_t lacking_ns = AcceptLimiter::patience_ns + 100'000'000;

// Empty with EAGAIN where the peer's backlog is full.
Descriptor connect_to_name(const std::string& name) {
  Descriptor fd(open_with_room(
      [] { return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }));
  if (!fd) return Descriptor();
  const AbstractName address(name);
  while (connect(fd.get(), address.get(), address.length) != 0) {
    if (errno == EINTR) continue;
    const int error = errno;
    fd.reset();
    errno = error;
    return Descriptor();
  }
  return fd;
}

bool send_greeting(int socket, const ShmGreeting& greeting, std::span<const int> fds) {
  iovec part = {const_cast<ShmGreeting*>(&greeting), sizeof greeting};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(fds_max * sizeof(int))> control{};
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof greeting);
}

// The descriptors are ours once the message has been read, whatever else is in it.
void take_descriptors(msghdr& message, ShmDescriptors& descriptors) {
  const std::array<Descriptor*, fds_max> places = {&descriptors.segment, &descriptors.doorbell,
                                                   &descriptors.heap};
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (!header || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) return;
  const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
  for (std::size_t i = 0; i < count && i < fds_max; ++i) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
    *places[i] = Descriptor(fd);
  }
}

// Descriptors that arrive beyond the limit are lost, so the limit is raised before.
void make_room_for_message(int socket) {
  const int lowest_free = fcntl(socket, F_DUPFD_CLOEXEC, 0);
  keep_descriptor_room(std::max(socket, lowest_free));
  if (lowest_free >= 0) close(lowest_free);
}

bool receive_greeting(int socket, ShmGreeting& greeting, ShmDescriptors& descriptors) {
  iovec part = {&greeting, sizeof greeting};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(fds_max * sizeof(int))> control{};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  // Not CMSG_SPACE: into its padding the kernel would put one descriptor more.
  message.msg_controllen = CMSG_LEN(fds_max * sizeof(int));
  make_room_for_message(socket);
  const ssize_t length = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (length < 0) return false;
  take_descriptors(message, descriptors);
  return static_cast<std::size_t>(length) == sizeof greeting &&
         (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0 &&
         greeting.magic == ShmGreeting::right_magic;
}

// For one more rank: its connection, and what comes over it.
bool has_room(std::size_t besides = 0) {
  const std::size_t wanted = 1 + fds_max + besides;
  return descriptors_left(wanted) == wanted;
}

// Left to the control plane and others of the process, where more than one handshake goes on.
constexpr std::size_t for_others = 8;

// The peer's process; 0 where the kernel does not tell.
pid_t peer_process(int socket) {
  ucred credentials = {};
  socklen_t size = sizeof credentials;
  const int status = getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size);
  return status == 0 ? credentials.pid : 0;
}

}  // namespace

Expected<std::string> ShmRendezvous::listen(const void* board) {
  greeting_.board = reinterpret_cast<std::uint64_t>(board);
  std::array<std::byte, 16> random;
  if (Error error = fill_random(random)) return error;
  std::string name = "pith-";
  for (const std::byte byte : random) name += fmt::format("{:02x}", static_cast<unsigned>(byte));
  listener_ = Descriptor(open_with_room(
      [] { return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }));
  if (!listener_) return system_error("socket for ranks of this host", errno);
  const AbstractName address(name);
  if (bind(listener_.get(), address.get(), address.length) != 0) {
    return system_error("bind to abstract socket " + name, errno);
  }
  if (::listen(listener_.get(), SOMAXCONN) != 0) return system_error("listen on " + name, errno);
  return name;
}

Digest ShmRendezvous::proof(const Talk& talk, bool of_dialler) const {
  struct {
    std::int32_t dialler;
    std::int32_t other;
    std::array<std::byte, 16> dialler_nonce;
    std::array<std::byte, 16> other_nonce;
    std::uint64_t of_dialler;
  } text = {talk.dialled ? rank_ : talk.peer, talk.dialled ? talk.peer : rank_,
            talk.dialled ? talk.nonce : talk.peer_nonce,
            talk.dialled ? talk.peer_nonce : talk.nonce, of_dialler ? 1u : 2u};
  return hmac_sha256(secret_, std::as_bytes(std::span(&text, 1)));
}

bool ShmRendezvous::say(Talk& talk, bool prove, bool descriptors) {
  ShmGreeting greeting = greeting_;
  greeting.nonce = talk.nonce;
  if (prove) greeting.proof = proof(talk, talk.dialled);
  const std::span<const int> all = mine_;
  const std::size_t count = !descriptors ? 0 : greeting_.heap_bytes != 0 ? 3 : 2;
  return send_greeting(talk.socket.get(), greeting, all.first(count));
}

// Handles the peer's first message. A dialler gets the peer's proof with it.
bool ShmRendezvous::hear_hello(Talk& talk, const ShmGreeting& theirs) {
  const bool fits = theirs.shape == greeting_.shape && theirs.ranks == greeting_.ranks;
  if (!fits || (talk.dialled && theirs.rank != talk.peer)) return false;
  if (!talk.dialled) {
    if (theirs.rank <= rank_ || theirs.rank >= greeting_.ranks) return false;
    talk.peer = theirs.rank;
  }
  talk.greeted = true;
  talk.peer_nonce = theirs.nonce;
  if (!talk.dialled) return say(talk, true, false);
  if (!hear_proof(talk, theirs)) return false;
  talk.cut = !say(talk, true, true);
  return !talk.cut;
}

bool ShmRendezvous::hear_proof(Talk& talk, const ShmGreeting& theirs) {
  return same_digest(proof(talk, !talk.dialled), theirs.proof);
}

// Notes when a rank's message has come without its descriptors for lack of room. Unauthenticated
// connections then have to leave as if there were no room for the connection itself.
void ShmRendezvous::note_lack(Talk& talk, const ShmGreeting& theirs) {
  const bool is_rank = talk.greeted && (talk.dialled || hear_proof(talk, theirs));
  if (!is_rank || make_descriptor_room(fds_max)) return;
  const std::uint64_t now = monotonic_ns();
  if (lacking_since_ns_ == 0) lacking_since_ns_ = now;
  limiter_.pause(now);
}

// Waiting helps while connections hold descriptors that are not kept, or are unauthenticated, for
// these lose theirs after a while: those that were there before a rank's descriptors got lost are
// waited for.
bool ShmRendezvous::is_starved() const {
  if (lacking_since_ns_ == 0) return talks_.empty() && !has_room();
  const auto oldest = oldest_unauthenticated();
  return monotonic_ns() - lacking_since_ns_ > lacking_ns &&
         (oldest == talks_.end() || oldest->since_ns > lacking_since_ns_) && !has_room();
}

bool ShmRendezvous::hear(Talk& talk, const std::function<void(Met)>& found) {
  ShmGreeting theirs;
  if (!receive_greeting(talk.socket.get(), theirs, talk.met.descriptors)) {
    talk.cut = true;
    note_lack(talk, theirs);
    return false;
  }
  if (!talk.greeted) return hear_hello(talk, theirs);
  const ShmDescriptors& got = talk.met.descriptors;
  if (!got.segment || !got.doorbell || (theirs.heap_bytes != 0) != static_cast<bool>(got.heap)) {
    return false;
  }
  if (!talk.dialled) {
    if (!hear_proof(talk, theirs) || !expected_[static_cast<std::size_t>(talk.peer)]) return false;
    if (!say(talk, false, true)) return false;
    expected_[static_cast<std::size_t>(talk.peer)] = false;
  }
  talk.met.rank = talk.peer;
  talk.met.pid = peer_process(talk.socket.get());
  talk.met.board = theirs.board;
  talk.met.socket = std::move(talk.socket);
  talk.met.heap_bytes = theirs.heap_bytes;
  found(std::move(talk.met));
  lacking_since_ns_ = 0;
  return false;
}

// From the next lower rank on, so that not all begin with the same one.
void ShmRendezvous::plan(std::span<const std::string> names) {
  const auto ranks = static_cast<int>(names.size());
  expected_.assign(names.size(), false);
  for (int step = 1; step < ranks; ++step) {
    const int peer = (rank_ - step + ranks) % ranks;
    if (!names[static_cast<std::size_t>(peer)].empty()) dials_.push_back({peer, 0});
  }
}

bool ShmRendezvous::may_begin() const { return has_room(talks_.empty() ? 0 : for_others); }

// Higher ranks are only tried, which takes no time.
bool ShmRendezvous::may_dial(const Dial& one) const {
  return one.peer > rank_ || talks_.size() - unauthenticated() < most_dialled;
}

void ShmRendezvous::dial_all(std::span<const std::string> names) {
  const std::uint64_t now = monotonic_ns();
  std::erase_if(dials_, [&](Dial& one) {
    if (now < one.not_before_ns || !may_dial(one)) return false;
    one.not_before_ns = now + retry_ns;
    return dial(one.peer, names[static_cast<std::size_t>(one.peer)]);
  });
}

bool ShmRendezvous::dial(int peer, const std::string& name) {
  if (!may_begin()) return false;
  Descriptor socket = connect_to_name(name);
  if (!socket) return errno != EAGAIN && errno != EMFILE && errno != ENFILE && errno != ENOBUFS;
  if (peer > rank_) {
    // Only tests whether the peer can be reached, for then it reaches us and will dial.
    expected_[static_cast<std::size_t>(peer)] = true;
    return true;
  }
  Talk talk;
  talk.socket = std::move(socket);
  talk.dialled = true;
  talk.peer = peer;
  if (fill_random(talk.nonce) || !say(talk, false, false)) return false;
  talks_.push_back(std::move(talk));
  return true;
}

void ShmRendezvous::accept_all() {
  while (!limiter_.is_full(unauthenticated(), monotonic_ns())) {
    if (!may_begin()) return limiter_.pause(monotonic_ns());
    Descriptor socket(open_with_room(
        [&] { return accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); }));
    if (!socket && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (!socket) {
      // No descriptors are left; unauthenticated connections may hold them, and time out.
      if (errno != EAGAIN && errno != EWOULDBLOCK) limiter_.pause(monotonic_ns());
      return;
    }
    Talk talk;
    talk.socket = std::move(socket);
    talk.since_ns = monotonic_ns();
    if (!fill_random(talk.nonce)) talks_.push_back(std::move(talk));
  }
}

std::size_t ShmRendezvous::unauthenticated() const {
  const auto called = [](const Talk& talk) { return !talk.dialled; };
  return static_cast<std::size_t>(std::count_if(talks_.begin(), talks_.end(), called));
}

std::vector<ShmRendezvous::Talk>::const_iterator ShmRendezvous::oldest_unauthenticated() const {
  return std::find_if(talks_.begin(), talks_.end(), [](const Talk& talk) { return !talk.dialled; });
}

// One at a time: as soon as the oldest is gone, another one can be accepted.
void ShmRendezvous::dismiss_overdue() {
  const auto oldest = oldest_unauthenticated();
  const std::uint64_t now = monotonic_ns();
  if (oldest == talks_.end() || now - oldest->since_ns <= limiter_.stay_ns(unauthenticated(), now))
    return;
  talks_.erase(oldest);
}

bool ShmRendezvous::finished() const {
  const bool dialling =
      std::any_of(talks_.begin(), talks_.end(), [](const Talk& talk) { return talk.dialled; });
  return !dialling && dials_.empty() &&
         std::find(expected_.begin(), expected_.end(), true) == expected_.end();
}

// `polled`: the listener, then the talks.
int ShmRendezvous::poll_once(std::vector<pollfd>& polled, const Patience& patience) {
  const std::uint64_t now = monotonic_ns();
  const std::size_t pending = unauthenticated();
  const bool full = limiter_.is_full(pending, now);
  std::uint64_t until = patience.deadline_ns;
  if (now < limiter_.resumes_at_ns()) until = std::min(until, limiter_.resumes_at_ns());
  for (const Dial& one : dials_) {
    if (may_dial(one)) until = std::min(until, one.not_before_ns);
  }
  polled.assign(1, {full ? -1 : listener_.get(), POLLIN, 0});
  for (const Talk& talk : talks_) {
    polled.push_back({talk.socket.get(), POLLIN, 0});
    if (!talk.dialled) until = std::min(until, talk.since_ns + limiter_.stay_ns(pending, now) + 1);
  }
  return poll(polled.data(), polled.size(), std::min(timeout_ms(until), patience.nap_ms()));
}

// A rank whose handshake was cut off, because many were in progress there, is dialled again.
void ShmRendezvous::end(std::size_t talk) {
  const Talk& ended = talks_[talk];
  if (ended.dialled && ended.cut) dials_.push_back({ended.peer, monotonic_ns() + retry_ns});
  talks_.erase(talks_.begin() + static_cast<std::ptrdiff_t>(talk));
}

Error ShmRendezvous::meet(std::span<const std::string> names, const RingShape& shape,
                          const int (&mine)[3], std::uint64_t heap_bytes, const Patience& patience,
                          const std::function<void(Met)>& found) {
  greeting_.shape = shape;
  greeting_.heap_bytes = heap_bytes;
  std::copy(std::begin(mine), std::end(mine), mine_.begin());
  plan(names);
  dial_all(names);
  std::vector<pollfd> polled;
  while (!finished()) {
    if (patience.over()) break;
    dismiss_overdue();
    if (poll_once(polled, patience) < 0 && errno != EINTR) {
      return system_error("poll while attaching ranks of this host", errno);
    }
    // From the back, because ended talks are erased.
    for (std::size_t i = polled.size(); i-- > 1;) {
      if (polled[i].revents != 0 && !hear(talks_[i - 1], found)) end(i - 1);
    }
    if (polled[0].revents != 0) accept_all();
    dial_all(names);
    if (!finished() && is_starved()) {
      return system_error("attach the ranks of this host, two descriptors for each", EMFILE);
    }
  }
  dials_.clear();
  talks_.clear();
  listener_ = Descriptor();
  return {};
}

}  // namespace pith
