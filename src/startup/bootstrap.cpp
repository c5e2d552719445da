#include "startup/bootstrap.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

#include "core/clock.hpp"
#include "core/descriptor_limit.hpp"
#include "core/waiting.hpp"
#include "startup/blob.hpp"
#include "transport/socket.hpp"

namespace pith {

namespace {

// Pauses between two attempts to connect to a root that does not listen yet.
constexpr std::chrono::milliseconds least_pause{5};
constexpr std::chrono::milliseconds most_pause{200};
// A root that closes the connection may be busy; for how long join tries again.
constexpr std::uint64_t most_busy_ns = 20'000'000'000;

// A process that keeps connecting to a free port of its own host may end up connected to itself:
// the kernel can pick that port as the connection's source.
bool is_own_echo(int fd) {
  const Expected<Address> own = local_address(fd);
  return own && format_address(*own) == peer_name(fd);
}

// True when the peer has closed the connection. The root closes those that are slow to authenticate
// when many ranks connect at once, and a rank on a busy machine is slow.
bool hung_up(int fd) {
  char byte = 0;
  const ssize_t got = ::recv(fd, &byte, sizeof byte, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && !would_block(errno));
}

// This process as errors at other ranks name it: "process 123 on node7".
std::string own_name() {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return fmt::format("process {} on {}", ::getpid(), host);
}

// An id made at run time (not known_before) had a listening root when it was made.
std::string nobody_there(const UniqueId& id) {
  return id.known_before
             ? "rank 0 has not started, or it has ended: then its own output says why"
             : "the process that made this id has ended, or its ranks have all started: an id "
               "serves one communicator";
}

Error another_job(const UniqueId& id, int rank, const Error& error) {
  if (id.known_before) {
    return {Code::remote,
            fmt::format("{}: PITH_SECRET or PITH_SECRET_FILE differs between rank {} and "
                        "rank 0, or another job has taken this port",
                        error.message(), rank)};
  }
  return {
      Code::remote,
      fmt::format("{}: the id is of another job, or of one that has ended and whose port serves "
                  "another id now; expected the id that rank 0's process has just made",
                  error.message())};
}

std::string name_of_root(const UniqueId& id) {
  return fmt::format("{} at {}, where the ranks meet,",
                     id.known_before ? "rank 0's process" : "the process that made the id",
                     id.address);
}

std::span<std::byte> bytes_of(std::string& text) {
  return std::as_writable_bytes(std::span(text.data(), text.size()));
}

}  // namespace

Patience Bootstrap::silence_until(std::uint64_t deadline_ns) const {
  if (!cancellation_ && !obstacle_) return {deadline_ns};
  return {deadline_ns, [this] { return is_interrupted() || own_failure(); }};
}

Error Bootstrap::own_failure() const {
  if (Error error = cancelled()) return error;
  return obstacle_ ? obstacle_() : Error();
}

std::uint64_t Bootstrap::connect_deadline() const {
  return std::min(deadline_ns_, deadline_after(connect_s_));
}

Error Bootstrap::call(const UniqueId& id, int rank, int ranks, bool& refused) {
  root_ = name_of_root(id);
  root_rank_ = id.known_before ? 0 : -1;
  const Expected<Address> root = parse_address(id.address);
  refused = !root;
  if (!root) return root.error();
  refused = !id.known_before;
  const Patience patience = silence_until(connect_deadline());
  Expected<Descriptor> connection = connect_to(*root, patience);
  if (!connection) {
    if (descriptors_are_used_up()) return connection.error();
    return Error(Code::remote, fmt::format("cannot reach the bootstrap root: {} ({})",
                                           connection.error().message(), nobody_there(id)));
  }
  if (is_own_echo(connection->get())) {
    return Error(Code::remote,
                 fmt::format("cannot reach the bootstrap root: nobody listens at {} ({})",
                             id.address, nobody_there(id)));
  }
  connection_ = std::move(*connection);
  Handshake handshake = Handshake::connector(id.secret, {"bootstrap", rank, 0, ranks, 0});
  Error error = shake_hands(handshake, connection_.get(), patience);
  if (handshake.refused()) {
    refused = true;
    return another_job(id, rank, error);
  }
  if (error) {
    const bool busy = hung_up(connection_.get());
    refused = refused && !busy;
    if (!busy) return of_root(error);
    return Error(Code::remote,
                 fmt::format("{} takes no calls, for it is busy or its start has failed: {}", root_,
                             error.message()),
                 root_rank_);
  }
  std::string hello;
  append_blob(hello, own_name());
  return send_all(connection_.get(), bytes_of(hello), patience);
}

Expected<Bootstrap> Bootstrap::join(const UniqueId& id, int rank, int ranks, StartTimes times,
                                    std::shared_ptr<const Cancellation> cancellation,
                                    std::function<Error()> obstacle) {
  Bootstrap bootstrap(times, std::move(cancellation));
  bootstrap.obstacle_ = std::move(obstacle);
  std::chrono::milliseconds pause = least_pause;
  // A root that must be listening already is tried again only while it closes connections as busy.
  const std::uint64_t busy_until = monotonic_ns() + most_busy_ns;
  while (true) {
    bool refused = false;
    const Error error = bootstrap.call(id, rank, ranks, refused);
    static_cast<void>(is_interrupted());
    if (Error failure = bootstrap.own_failure()) {
      if (!error) bootstrap.give_up(failure);
      return failure;
    }
    if (!error) {
      bootstrap.deadline_ns_ = deadline_after(times.join_s);  // the root's starts with its first
                                                              // rank
      return bootstrap;
    }
    const std::uint64_t now = monotonic_ns();
    if (refused || now > bootstrap.deadline_ns_) return error;
    if (descriptors_are_used_up()) {
      return Error(Code::system, fmt::format("rank {}: {}", rank, error.message()), rank);
    }
    if (!id.known_before && now > busy_until) return error;
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, most_pause);
  }
}

Error Bootstrap::root_lost() const {
  return {Code::remote, fmt::format("{} has ended or is lost during start-up", root_), root_rank_};
}

Error Bootstrap::of_root(const Error& error) const {
  if (hung_up(connection_.get())) return root_lost();
  return {Code::remote, fmt::format("{} does not answer: {}", root_, error.message()), root_rank_};
}

Error Bootstrap::failure() const {
  const Error own = own_failure();
  return own ? own : told_failure();
}

// Outside of a gather the root sends nothing but a failure of the start-up.
Error Bootstrap::told_failure() const {
  if (Error error = source_ ? source_() : Error()) return error;
  struct {
    BlobHeader header;
    char text[512];
  } said;
  const ssize_t got = ::recv(connection_.get(), &said, sizeof said, MSG_PEEK | MSG_DONTWAIT);
  if (got <= 0 && hung_up(connection_.get())) return root_lost();
  if (got < static_cast<ssize_t>(sizeof said.header)) return {};
  const std::size_t length =
      std::min<std::size_t>(said.header.size, static_cast<std::size_t>(got) - sizeof said.header);
  return {Code::remote, std::string(said.text, length)};
}

// Nothing is half sent here and the message is small, so the socket buffer takes it without
// waiting. A rank that the root has told of a failure reports none of its own.
void Bootstrap::give_up(const Error& error) {
  if (!connection_ || told_failure()) return;
  std::string message;
  append_blob(message, error.message(), BlobHeader::Kind::failure);
  static_cast<void>(send_all(connection_.get(), bytes_of(message), {monotonic_ns()}));
}

Expected<std::string> Bootstrap::host() const {
  const Expected<Address> address = local_address(connection_.get());
  if (!address) return address.error();
  return format_host(*address);
}

Expected<std::vector<std::string>> Bootstrap::gather(const std::string& mine) {
  const Expected<std::string> all = exchange(mine);
  if (Error error = own_failure()) return error;
  if (!all) return all.error();
  deadline_ns_ = connect_deadline();  // all ranks have joined by now
  return split_strings(*all);
}

Expected<std::string> Bootstrap::exchange(const std::string& mine) {
  const Patience patience = silence_until(deadline_ns_);
  std::string message;
  append_blob(message, mine);
  if (Error error = send_all(connection_.get(), bytes_of(message), patience)) {
    const Error told = failure();  // the root may have sent the reason
    return told ? told : of_root(error);
  }
  BlobHeader header;
  std::span<std::byte> header_bytes = std::as_writable_bytes(std::span(&header, 1));
  if (Error error = recv_all(connection_.get(), header_bytes, patience)) return of_root(error);
  if (header.size > blob_bytes_max) {
    return Error(Code::internal, "the bootstrap root sent a message that is too long");
  }
  std::string text(header.size, '\0');
  if (Error error = recv_all(connection_.get(), bytes_of(text), patience)) return of_root(error);
  if (header.kind == BlobHeader::Kind::failure) return Error(Code::remote, text);
  return text;
}

}  // namespace pith
