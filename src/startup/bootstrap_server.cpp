#include "startup/bootstrap_server.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/clock.hpp"
#include "core/descriptor_limit.hpp"
#include "core/log.hpp"
#include "startup/rendezvous.hpp"
#include "transport/socket.hpp"

namespace pith {

namespace {

constexpr std::uint64_t second_ns = 1'000'000'000;
constexpr std::uint64_t handshake_ns = 10 * second_ns;
constexpr int tick_ms = 100;
constexpr std::uint32_t name_bytes_max = 300;
constexpr std::uint64_t late_ns = 120 * second_ns;   // how long a failed start answers late ranks
constexpr std::uint64_t report_ns = 60 * second_ns;  // until the log names absent ranks

std::uint64_t ns_of(double seconds) { return static_cast<std::uint64_t>(seconds * 1e9); }

bool may_go_on(ssize_t moved) { return moved < 0 && would_block(errno); }

BlobHeader header_of(std::string_view text) {
  BlobHeader header;
  std::memcpy(&header, text.data(), sizeof header);
  return header;
}

bool begins_with_blob(std::string_view text) {
  return text.size() >= sizeof(BlobHeader) &&
         text.size() - sizeof(BlobHeader) >= header_of(text).size;
}

}  // namespace

BootstrapServer::BootstrapServer(Descriptor listener, UniqueId id, double timeout_s,
                                 std::string before)
    : listener_(std::move(listener)),
      told_here_(open_with_room([] { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); })),
      id_(std::move(id)),
      one_start_(id_.known_before),
      timeout_s_(timeout_s),
      before_(std::move(before)) {}

bool BootstrapConnection::has_blob() const { return begins_with_blob(in); }

std::optional<std::string> BootstrapConnection::take_failure() {
  for (std::string_view left = in; begins_with_blob(left);) {
    const BlobHeader header = header_of(left);
    left.remove_prefix(sizeof header);
    if (header.kind == BlobHeader::Kind::failure) {
      std::string why(left.substr(0, header.size));
      in.clear();
      return why;
    }
    left.remove_prefix(header.size);
  }
  return std::nullopt;
}

std::string BootstrapConnection::take_blob() {
  const std::uint32_t size = header_of(in).size;
  std::string blob = in.substr(sizeof(BlobHeader), size);
  in.erase(0, sizeof(BlobHeader) + size);
  return blob;
}

void BootstrapConnection::say(const std::string& text, BlobHeader::Kind kind) {
  auto blob = std::make_shared<std::string>();
  append_blob(*blob, text, kind);
  out.push_back(std::move(blob));
}

bool BootstrapConnection::read() {
  char buffer[16384];
  while (true) {
    const ssize_t got = recv(fd.get(), buffer, sizeof buffer, 0);
    if (got <= 0) return may_go_on(got);
    in.append(buffer, static_cast<std::size_t>(got));
    if (in.size() > blob_bytes_max) return false;
  }
}

bool BootstrapConnection::write() {
  while (!out.empty()) {
    const std::string_view left = std::string_view(*out.front()).substr(out_done);
    const ssize_t sent = send(fd.get(), left.data(), left.size(), MSG_NOSIGNAL);
    if (sent <= 0) return may_go_on(sent);
    out_done += static_cast<std::size_t>(sent);
    if (out_done < out.front()->size()) continue;
    out.pop_front();
    out_done = 0;
  }
  return true;
}

// With too many unauthenticated connections the oldest is closed: a rank authenticates at once, or
// connects again.
bool BootstrapServer::may_accept() {
  const std::uint64_t now = monotonic_ns();
  const auto is_pending = [](const Connection& one) { return !one.authenticated; };
  const auto pending = static_cast<std::size_t>(std::ranges::count_if(connections_, is_pending));
  if (!limiter_.is_full(pending, now)) return true;
  if (pending < AcceptLimiter::most) return false;
  const auto oldest = std::ranges::find_if(connections_, is_pending);
  if (now < oldest->deadline - handshake_ns + AcceptLimiter::patience_ns) return false;
  connections_.erase(oldest);
  return !limiter_.is_full(pending - 1, now);
}

void BootstrapServer::accept_connections() {
  while (may_accept()) {
    Expected<Descriptor> accepted = accept_one(listener_.get());
    if (!accepted) limiter_.pause(monotonic_ns());  // out of descriptors
    if (!accepted) return starve(accepted.error());
    if (!*accepted) return;
    connections_.emplace_back(
        std::move(*accepted),
        Handshake::acceptor(id_.secret, {"bootstrap", Greeting::any, 0}, true),
        monotonic_ns() + handshake_ns);
  }
}

// Runs out of descriptors. Unauthenticated connections time out and free theirs; ranks keep theirs,
// so with ranks alone the start fails. Peers still in the backlog are told when others have
// disconnected.
void BootstrapServer::starve(const Error& error) {
  const auto has_joined = [](const Connection& connection) { return connection.joined; };
  if (ranks_.empty() || complete()) return;
  if (!std::ranges::all_of(connections_, has_joined)) return;
  fail_all(fmt::format(
      "the process where ranks meet has no descriptors for {} ranks, {} of which have come: {}",
      ranks_.size(), joined_, error.message()));
}

void BootstrapServer::cannot_join(const std::string& why) {
  const std::lock_guard lock(own_failure_.mutex);
  if (own_failure_.why.empty()) own_failure_.why = why;
  owes_word_ = true;
  constexpr std::uint64_t once = 1;
  if (told_here_) [[maybe_unused]]
    const auto woken = ::write(told_here_.get(), &once, sizeof once);
}

void BootstrapServer::note_debt(bool owes) {
  const std::lock_guard lock(own_failure_.mutex);
  owes_word_ = owes || !own_failure_.why.empty();
}

std::string BootstrapServer::take_own_failure() {
  const std::lock_guard lock(own_failure_.mutex);
  std::uint64_t times = 0;
  if (told_here_) [[maybe_unused]]
    const auto taken = ::read(told_here_.get(), &times, sizeof times);
  return std::exchange(own_failure_.why, {});
}

void BootstrapServer::shake_hands(Connection& connection) {
  Expected<Handshake::Want> want = connection.handshake.step(connection.fd.get());
  const bool called = want && *want == Handshake::Want::write;
  if (called && one_start_ && has_heard(connection.handshake.greeting().from)) {
    connection.gone = true;
    return;
  }
  if (called) want = connection.handshake.step(connection.fd.get());
  connection.authenticated = want && *want == Handshake::Want::done;
  connection.gone = !want || monotonic_ns() > connection.deadline;
  if (want || !connection.handshake.refused()) return;
  ++refused_.calls;
  refused_.last = want.error().message();
  log(LogLevel::debug, "bootstrap root: " + refused_.last, LogTopic::bootstrap);
}

void BootstrapServer::read_name(Connection& connection) {
  if (monotonic_ns() > connection.deadline) connection.gone = true;
  if (!connection.gone && !connection.read()) leave(connection);
  if (!connection.has_blob()) return;
  join(connection, connection.take_blob().substr(0, name_bytes_max));
  if (connection.gone) leave(connection);  // it joined and disconnected at once
}

// An authenticated peer that does not fit (rank, size) shows that the job was started wrongly; all
// waiting ranks are told, for no wait can mend it.
void BootstrapServer::join(Connection& connection, const std::string& name) {
  const auto refuse = [&](const std::string& why) {
    connection.say(why, BlobHeader::Kind::failure);
  };
  const Greeting& greeting = connection.handshake.greeting();
  const int rank = greeting.from;
  connection.joined = true;
  if (ranks_.empty()) {
    if (greeting.ranks < 1 || greeting.ranks > most_ranks) {
      return refuse(fmt::format("nranks is {}, expected 1 to {}", greeting.ranks, most_ranks));
    }
    ranks_.resize(static_cast<std::size_t>(greeting.ranks));
    names_.resize(ranks_.size());
    told_.resize(ranks_.size());
    give_up_at_ = monotonic_ns() + ns_of(timeout_s_);
    report_at_ = monotonic_ns() + report_ns;
    first_ = fmt::format("{} (rank {})", name, rank);
  }
  const auto n = static_cast<int>(ranks_.size());
  if (!failure_.empty()) {
    note_told(rank);
    return refuse(failure_);
  }
  if (complete()) return refuse(used_up(rank));
  if (greeting.ranks != n) {
    return fail_all(
        fmt::format("rank {} gives nranks {}, others give {}: {} and {}, expected the same "
                    "of all",
                    rank, greeting.ranks, n, name, first_));
  }
  if (rank < 0 || rank >= n) {
    return refuse(fmt::format("rank is {}, expected 0 to {}", rank, n - 1));
  }
  const auto place = static_cast<std::size_t>(rank);
  if (ranks_[place]) {
    return fail_all(
        fmt::format("rank {} joined twice: first {}, then {}; expected each rank from "
                    "0 to {} once",
                    rank, names_[place], name, n - 1));
  }
  connection.rank = rank;
  ranks_[place] = &connection;
  names_[place] = name;
  // Closed before any rank can know that the start is over and reuse the port.
  if (++joined_ == ranks_.size() && one_start_) listener_.reset();
}

std::string BootstrapServer::used_up(int rank) const {
  const std::size_t n = names_.size();
  const auto place = static_cast<std::size_t>(rank);
  const std::string by =
      rank >= 0 && place < n ? fmt::format(", rank {} by {}", rank, names_[place]) : "";
  return fmt::format(
      "the id has been used already: all {} ranks of its communicator have joined{}; "
      "expected a new id from {} for each communicator",
      n, by, id_.members > 0 ? "pithCommGetUniqueId" : "pithGetUniqueId");
}

std::string BootstrapServer::refused() const {
  if (refused_.calls == 0) return {};
  return fmt::format("; {} call{} with another secret {} refused, the last: {}", refused_.calls,
                     refused_.calls == 1 ? "" : "s", refused_.calls == 1 ? "was" : "were",
                     refused_.last);
}

void BootstrapServer::leave(Connection& connection) {
  connection.gone = true;
  if (connection.rank < 0) return;
  ranks_[static_cast<std::size_t>(connection.rank)] = nullptr;
  if (first_left_ < 0) first_left_ = connection.rank;
}

// A rank may disconnect when it is done; if others still wait for its blob, the start-up fails.
void BootstrapServer::check_leavers() {
  if (first_left_ < 0) return;
  const auto waits = [](const Connection* connection) {
    return connection && connection->has_blob();
  };
  const std::string absent = missing();
  if (!absent.empty() || std::any_of(ranks_.begin(), ranks_.end(), waits)) {
    fail_all(fmt::format("rank {} went away during start-up{}", first_left_,
                         absent.empty() ? "" : fmt::format("; {} had not come yet", absent)));
  }
}

void BootstrapServer::fail_all(const std::string& why) {
  if (!failure_.empty()) return;
  failure_ = why;
  note_debt(true);  // before a rank can hear of it and end this process
  give_up_at_ = monotonic_ns() + late_ns;
  log(LogLevel::info, "start-up failed: " + why, LogTopic::bootstrap);
  for (Connection& connection : connections_) {
    if (!connection.joined || connection.gone) continue;
    note_told(connection.rank);
    connection.say(why, BlobHeader::Kind::failure);
  }
}

void BootstrapServer::note_told(int rank) {
  if (rank >= 0 && static_cast<std::size_t>(rank) < told_.size()) {
    told_[static_cast<std::size_t>(rank)] = true;
  }
}

// A rank that was told of this failure and connects again wants the next start: its connection is
// dropped, and it retries until that one listens.
bool BootstrapServer::has_heard(int rank) const {
  return rank >= 0 && static_cast<std::size_t>(rank) < told_.size() &&
         told_[static_cast<std::size_t>(rank)];
}

// Ranks that joined and left need not be told.
bool BootstrapServer::all_have_heard() const {
  if (told_.empty()) return false;
  for (std::size_t r = 0; r < told_.size(); ++r) {
    if (!told_[r] && names_[r].empty()) return false;
  }
  return true;
}

// A rank that gives up sends its reason instead of its blob or, while it waits, after it.
void BootstrapServer::hear_failures() {
  for (Connection& one : connections_) {
    if (!one.joined) continue;
    if (const std::optional<std::string> why = one.take_failure()) fail_all(*why);
  }
}

void BootstrapServer::finish_rounds() {
  const auto ready = [](const Connection* one) { return one && one->has_blob(); };
  while (!ranks_.empty() && std::ranges::all_of(ranks_, ready)) {
    std::string all;
    for (Connection* one : ranks_) append_blob(all, one->take_blob());
    const auto answer = std::make_shared<std::string>();
    append_blob(*answer, all);
    for (Connection* one : ranks_) one->out.push_back(answer);
    give_up_at_ = monotonic_ns() + ns_of(timeout_s_);
  }
}

void BootstrapServer::check_absent() {
  if (ranks_.empty() || joined_ == ranks_.size() || !failure_.empty()) return;
  const std::uint64_t now = monotonic_ns();
  if (now > give_up_at_) {
    return fail_all(fmt::format("{} did not join within {:g} s{}{}", missing(), timeout_s_,
                                refused(), before_));
  }
  if (now < report_at_) return;
  report_at_ = give_up_at_;
  log(LogLevel::warn,
      fmt::format("{} of {} ranks have waited up to {} s in the start-up: {} did not join{}",
                  joined_, ranks_.size(), report_ns / second_ns, missing(), refused()),
      LogTopic::bootstrap);
}

// Ranks that joined and left again do not count as missing.
std::string BootstrapServer::missing() const {
  std::string names;
  for (std::size_t r = 0; r < names_.size(); ++r) {
    if (names_[r].empty()) names += fmt::format("{}rank {}", names.empty() ? "" : ", ", r);
  }
  return names;
}

// While nobody uses the id, poll blocks without a timeout. A start that has failed ends in time.
void BootstrapServer::wait_for_news(int wake) {
  const bool listens = may_accept();
  std::vector<pollfd> waits = {{listens ? listener_.get() : -1, POLLIN, 0},
                               {wake, POLLIN, 0},
                               {told_here_.get(), POLLIN, 0}};
  for (const Connection& one : connections_) {
    const auto events = static_cast<short>(one.out.empty() ? POLLIN : POLLIN | POLLOUT);
    waits.push_back({one.fd.get(), events, 0});
  }
  const bool unused = !one_start_ && listens && connections_.empty() && ranks_.empty() &&
                      failure_.empty() && told_here_;
  poll(waits.data(), waits.size(), unused && wake >= 0 ? -1 : tick_ms);
}

void BootstrapServer::serve(const std::atomic<bool>& stop, int wake) {
  while (!stop) {
    wait_for_news(wake);
    const std::string own = take_own_failure();  // first, as it precedes what that rank sends
    for (Connection& one : connections_) {
      if (!one.authenticated) shake_hands(one);
      if (one.authenticated && !one.joined && !one.gone) read_name(one);
      if (one.joined && !one.gone && !one.read()) leave(one);
    }
    hear_failures();
    if (!own.empty() && !complete()) fail_all(own);
    finish_rounds();
    check_leavers();
    check_absent();
    for (Connection& one : connections_) {
      if (one.joined && !one.gone && !one.write()) leave(one);
    }
    connections_.remove_if([](const Connection& one) { return one.gone; });
    // Until its port is wanted the listener stays, so late ranks are told why the start failed.
    if (gives_back_.exchange(false, std::memory_order_relaxed) && !failure_.empty()) {
      listener_.reset();
    }
    const bool deaf = !listener_ || all_have_heard() || monotonic_ns() > give_up_at_;
    note_debt(failure_.empty() ? !ranks_.empty() && !complete() : !deaf);
    const bool over = complete() || (!failure_.empty() && deaf);
    const auto present = [](const Connection* one) { return one != nullptr; };
    if (over && std::ranges::none_of(ranks_, present)) return;
    if (listener_) accept_connections();
  }
}

}  // namespace pith
