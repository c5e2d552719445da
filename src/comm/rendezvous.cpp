#include "comm/rendezvous.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/blob.hpp"
#include "comm/listen_host.hpp"
#include "core/clock.hpp"
#include "core/descriptor_limit.hpp"
#include "core/log.hpp"
#include "core/per_process.hpp"
#include "core/random_bytes.hpp"
#include "core/run_together.hpp"

namespace pith {

namespace {

constexpr std::uint64_t second_ns = 1'000'000'000;
constexpr std::uint64_t handshake_ns = 10 * second_ns;
// Connections that have not proved themselves; what comes beyond waits in the kernel's queue, so
// that strangers cannot take all descriptors of the process.
constexpr std::ptrdiff_t most_strangers = 256;
constexpr std::uint64_t patience_ns = second_ns / 2;  // with the oldest of them, when all are there
constexpr int tick_ms = 100;
constexpr std::uint32_t name_bytes_max = 300;
constexpr std::uint64_t late_ns = 120 * second_ns;   // for ranks that come after the start failed
constexpr std::uint64_t parting_ns = second_ns;      // the same, where the process ends
constexpr std::uint64_t report_ns = 60 * second_ns;  // before it is told who has not come
constexpr std::uint64_t deaf_ns = second_ns / 10;    // after a call that could not be taken

// One connection: first a stranger in its handshake, then a rank.
struct Guest {
  Guest(Descriptor connection, Handshake hello, std::uint64_t refuse_at)
      : fd(std::move(connection)), handshake(std::move(hello)), deadline(refuse_at) {}
  Descriptor fd;
  Handshake handshake;
  std::uint64_t deadline;
  bool proved = false;  // it knows the secret, and says next who it is
  bool joined = false;
  bool gone = false;
  int rank = -1;
  std::string in;
  // What all ranks get is there once: it grows with their square.
  std::deque<std::shared_ptr<const std::string>> out;
  std::size_t out_done = 0;  // of the first

  void say(const std::string& text, BlobHeader::Kind kind) {
    auto blob = std::make_shared<std::string>();
    append_blob(*blob, text, kind);
    out.push_back(std::move(blob));
  }
};

class Server {
 public:
  Server(Descriptor listener, UniqueId id, double timeout_s, std::string before = {})
      : listener_(std::move(listener)),
        id_(std::move(id)),
        one_meeting_(id_.known_before),
        timeout_s_(timeout_s),
        timeout_ns_(static_cast<std::uint64_t>(timeout_s * static_cast<double>(second_ns))),
        before_(std::move(before)) {}

  // `wake` is readable once `stop` is set.
  void serve(const std::atomic<bool>& stop, int wake);
  // Nobody is served any more.
  void hang_up() {
    guests_.clear();
    listener_.reset();
  }
  // Ranks wait or may come, and the start has failed or does so if this process ends. Any thread.
  bool owes_word() const { return owes_word_.load(std::memory_order_relaxed); }
  // A start that has failed lets go of its port, which another one needs. Any thread.
  void give_port_back() { gives_back_.store(true, std::memory_order_relaxed); }
  // For a cause of this process, which whoever waits or comes is told. Any thread.
  void cannot_join(const std::string& why);
  bool serves(const UniqueId& id) const {
    return id.address == id_.address && id.secret == id_.secret;
  }

 private:
  bool has_room();
  void welcome();
  void greet(Guest& guest);
  void hear_name(Guest& guest);
  void join(Guest& guest, const std::string& name);
  void refuse(Guest& guest, const std::string& why);
  void read(Guest& guest);
  void write(Guest& guest);
  void leave(Guest& guest);
  void finish_round();
  void hear_failures();
  std::string take_own_failure();
  void note_debt(bool owes);
  void starve(const Error& error);
  void check_leavers();
  void check_absent();
  void fail_all(const std::string& why);
  void close_door();
  void note_told(int rank);
  bool has_heard(int rank) const;
  bool all_have_heard() const;
  bool has_blob(const Guest& guest) const;
  bool complete() const { return !ranks_.empty() && joined_ == ranks_.size(); }
  std::string missing() const;
  std::string turned_away() const;
  std::string used_up(int rank) const;

  Descriptor listener_;
  UniqueId id_;
  const bool one_meeting_;  // its port is needed again
  const double timeout_s_;
  const std::uint64_t timeout_ns_;
  const std::string before_;      // of the port
  std::uint64_t give_up_at_ = 0;  // set by the first rank that joins
  std::uint64_t report_at_ = 0;   // too
  std::uint64_t deaf_until_ = 0;
  std::list<Guest> guests_;
  std::vector<Guest*> ranks_;       // empty until the first rank says how many there are
  std::vector<std::string> names_;  // of their processes, also when they have gone
  std::size_t joined_ = 0;
  int first_rank_ = -1;  // of the one who said how many there are
  std::string first_name_;
  int first_left_ = -1;
  int other_secrets_ = 0;  // callers who held another one
  std::string last_other_secret_;
  std::string failure_;     // why nobody can start any more; empty: they can
  std::vector<bool> told_;  // ranks that have heard so
  std::mutex mutex_;
  std::string own_failure_;  // of this process, until the loop hears of it
  std::atomic<bool> owes_word_{false};
  std::atomic<bool> gives_back_{false};
};

// The oldest stranger goes when the table is full: a rank proves itself at once, or calls again.
bool Server::has_room() {
  const auto is_stranger = [](const Guest& guest) { return !guest.proved; };
  if (std::count_if(guests_.begin(), guests_.end(), is_stranger) < most_strangers) return true;
  const auto oldest = std::find_if(guests_.begin(), guests_.end(), is_stranger);
  if (monotonic_ns() < oldest->deadline - handshake_ns + patience_ns) return false;
  guests_.erase(oldest);
  return true;
}

void Server::welcome() {
  while (monotonic_ns() >= deaf_until_ && has_room()) {
    Expected<Descriptor> accepted = accept_one(listener_.get());
    if (!accepted) deaf_until_ = monotonic_ns() + deaf_ns;  // no descriptors are left
    if (!accepted) return starve(accepted.error());
    if (!*accepted) return;
    guests_.emplace_back(std::move(*accepted),
                         Handshake::acceptor(id_.secret, {"bootstrap", Greeting::any, 0}, true),
                         monotonic_ns() + handshake_ns);
  }
}

// Strangers who have all descriptors go after a while; ranks do not. Those that could not be taken
// are told when the others have left room for them.
void Server::starve(const Error& error) {
  const auto is_stranger = [](const Guest& guest) { return !guest.joined; };
  if (ranks_.empty() || complete()) return;
  if (std::any_of(guests_.begin(), guests_.end(), is_stranger)) return;
  fail_all(fmt::format(
      "the process where ranks meet has no descriptors for {} ranks, {} of which have come: {}",
      ranks_.size(), joined_, error.message()));
}

void Server::cannot_join(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (own_failure_.empty()) own_failure_ = why;
  owes_word_ = true;
}

void Server::note_debt(bool owes) {
  const std::lock_guard lock(mutex_);
  owes_word_ = owes || !own_failure_.empty();
}

std::string Server::take_own_failure() {
  const std::lock_guard lock(mutex_);
  return std::exchange(own_failure_, {});
}

void Server::greet(Guest& guest) {
  Expected<Handshake::Want> want = guest.handshake.step(guest.fd.get());
  const bool called = want && *want == Handshake::Want::write;
  if (called && one_meeting_ && has_heard(guest.handshake.greeting().from)) {
    guest.gone = true;
    return;
  }
  if (called) want = guest.handshake.step(guest.fd.get());
  guest.proved = want && *want == Handshake::Want::done;
  guest.gone = !want || monotonic_ns() > guest.deadline;
  if (want || !guest.handshake.refused()) return;
  ++other_secrets_;
  last_other_secret_ = want.error().message();
  log(LogLevel::debug, "bootstrap root: " + last_other_secret_, LogTopic::bootstrap);
}

void Server::hear_name(Guest& guest) {
  if (monotonic_ns() > guest.deadline) guest.gone = true;
  if (!guest.gone) read(guest);
  if (!has_blob(guest)) return;
  BlobHeader header;
  std::memcpy(&header, guest.in.data(), sizeof header);
  const std::string name = guest.in.substr(sizeof header, std::min(header.size, name_bytes_max));
  guest.in.erase(0, sizeof header + header.size);
  join(guest, name);
  if (guest.gone) leave(guest);  // it came and went at once
}

void Server::refuse(Guest& guest, const std::string& why) {
  guest.say(why, BlobHeader::Kind::failure);
}

// Whoever proves to know the secret and does not fit shows that the ranks were started wrongly: all
// who wait are told, for waiting will not help them.
void Server::join(Guest& guest, const std::string& name) {
  const Greeting& greeting = guest.handshake.greeting();
  const int rank = greeting.from;
  guest.joined = true;
  if (ranks_.empty()) {
    if (greeting.ranks < 1 || greeting.ranks > most_ranks) {
      return refuse(guest,
                    fmt::format("nranks is {}, expected 1 to {}", greeting.ranks, most_ranks));
    }
    ranks_.resize(static_cast<std::size_t>(greeting.ranks));
    names_.resize(ranks_.size());
    told_.resize(ranks_.size());
    give_up_at_ = monotonic_ns() + timeout_ns_;
    report_at_ = monotonic_ns() + report_ns;
    first_rank_ = rank;
    first_name_ = name;
  }
  const auto n = static_cast<int>(ranks_.size());
  if (!failure_.empty()) {
    note_told(rank);
    return refuse(guest, failure_);
  }
  if (complete()) return refuse(guest, used_up(rank));
  if (greeting.ranks != n) {
    return fail_all(
        fmt::format("rank {} gives nranks {}, others give {}: {} and {} (rank {}), expected "
                    "the same of all",
                    rank, greeting.ranks, n, name, first_name_, first_rank_));
  }
  if (rank < 0 || rank >= n) {
    return refuse(guest, fmt::format("rank is {}, expected 0 to {}", rank, n - 1));
  }
  const auto place = static_cast<std::size_t>(rank);
  if (ranks_[place]) {
    return fail_all(
        fmt::format("rank {} joined twice: first {}, then {}; expected each rank from "
                    "0 to {} once",
                    rank, names_[place], name, n - 1));
  }
  guest.rank = rank;
  ranks_[place] = &guest;
  names_[place] = name;
  if (++joined_ == ranks_.size()) close_door();
}

std::string Server::used_up(int rank) const {
  const std::size_t n = names_.size();
  const auto place = static_cast<std::size_t>(rank);
  const std::string by =
      rank >= 0 && place < n ? fmt::format(", rank {} by {}", rank, names_[place]) : "";
  return fmt::format(
      "the id has been used already: all {} ranks of its communicator have joined{}; "
      "expected a new id from pithGetUniqueId for each communicator",
      n, by);
}

std::string Server::turned_away() const {
  if (other_secrets_ == 0) return {};
  return fmt::format("; {} call{} with another secret {} refused, the last: {}", other_secrets_,
                     other_secrets_ == 1 ? "" : "s", other_secrets_ == 1 ? "was" : "were",
                     last_other_secret_);
}

// Before any rank can know that the meeting is over, and ask for the port again.
void Server::close_door() {
  if (one_meeting_) listener_.reset();
}

bool Server::has_blob(const Guest& guest) const {
  BlobHeader header;
  if (guest.in.size() < sizeof header) return false;
  std::memcpy(&header, guest.in.data(), sizeof header);
  return guest.in.size() >= sizeof header + header.size;
}

void Server::read(Guest& guest) {
  char buffer[16384];
  while (true) {
    const ssize_t got = recv(guest.fd.get(), buffer, sizeof buffer, 0);
    if (got > 0) {
      guest.in.append(buffer, static_cast<std::size_t>(got));
      if (guest.in.size() > blob_bytes_max) return leave(guest);
      continue;
    }
    if (got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) leave(guest);
    return;
  }
}

void Server::write(Guest& guest) {
  while (!guest.out.empty()) {
    const std::string_view left = std::string_view(*guest.out.front()).substr(guest.out_done);
    const ssize_t sent = send(guest.fd.get(), left.data(), left.size(), MSG_NOSIGNAL);
    if (sent <= 0) {
      if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) leave(guest);
      return;
    }
    guest.out_done += static_cast<std::size_t>(sent);
    if (guest.out_done < guest.out.front()->size()) continue;
    guest.out.pop_front();
    guest.out_done = 0;
  }
}

void Server::leave(Guest& guest) {
  guest.gone = true;
  if (guest.rank < 0) return;
  ranks_[static_cast<std::size_t>(guest.rank)] = nullptr;
  if (first_left_ < 0) first_left_ = guest.rank;
}

// Ranks go when they are done; one that goes while others wait for its blob ends the start-up.
void Server::check_leavers() {
  if (first_left_ < 0) return;
  const auto waits = [this](const Guest* guest) { return guest && has_blob(*guest); };
  const std::string absent = missing();
  if (!absent.empty() || std::any_of(ranks_.begin(), ranks_.end(), waits)) {
    fail_all(fmt::format("rank {} went away during start-up{}", first_left_,
                         absent.empty() ? "" : fmt::format("; {} had not come yet", absent)));
  }
}

void Server::fail_all(const std::string& why) {
  if (!failure_.empty()) return;
  failure_ = why;
  note_debt(true);  // before anybody hears of it, and ends this process
  give_up_at_ = monotonic_ns() + late_ns;
  log(LogLevel::info, "start-up failed: " + why, LogTopic::bootstrap);
  for (Guest& guest : guests_) {
    if (!guest.joined || guest.gone) continue;
    note_told(guest.rank);
    guest.say(why, BlobHeader::Kind::failure);
  }
}

void Server::note_told(int rank) {
  if (rank >= 0 && static_cast<std::size_t>(rank) < told_.size()) {
    told_[static_cast<std::size_t>(rank)] = true;
  }
}

// Whoever calls again means another start, and goes on calling until that begins.
bool Server::has_heard(int rank) const {
  return rank >= 0 && static_cast<std::size_t>(rank) < told_.size() &&
         told_[static_cast<std::size_t>(rank)];
}

// Those that had joined and are gone do not come again.
bool Server::all_have_heard() const {
  if (told_.empty()) return false;
  for (std::size_t r = 0; r < told_.size(); ++r) {
    if (!told_[r] && names_[r].empty()) return false;
  }
  return true;
}

// A rank that gives up says why, in place of what it would have contributed.
void Server::hear_failures() {
  for (Guest& guest : guests_) {
    if (!guest.joined || !has_blob(guest)) continue;
    BlobHeader header;
    std::memcpy(&header, guest.in.data(), sizeof header);
    if (header.kind != BlobHeader::Kind::failure) continue;
    const std::string why = guest.in.substr(sizeof header, header.size);
    guest.in.erase(0, sizeof header + header.size);
    fail_all(why);
  }
}

void Server::finish_round() {
  const auto ready = [this](const Guest* guest) { return guest && has_blob(*guest); };
  while (!ranks_.empty() && std::all_of(ranks_.begin(), ranks_.end(), ready)) {
    std::string all;
    for (Guest* guest : ranks_) {
      BlobHeader header;
      std::memcpy(&header, guest->in.data(), sizeof header);
      all.append(guest->in, 0, sizeof header + header.size);
      guest->in.erase(0, sizeof header + header.size);
    }
    const auto answer = std::make_shared<std::string>();
    append_blob(*answer, all);
    for (Guest* guest : ranks_) guest->out.push_back(answer);
    give_up_at_ = monotonic_ns() + timeout_ns_;
  }
}

void Server::check_absent() {
  if (ranks_.empty() || joined_ == ranks_.size() || !failure_.empty()) return;
  const std::uint64_t now = monotonic_ns();
  if (now > give_up_at_) {
    return fail_all(fmt::format("{} did not join within {:g} s{}{}", missing(), timeout_s_,
                                turned_away(), before_));
  }
  if (now < report_at_) return;
  report_at_ = give_up_at_;
  log(LogLevel::warn,
      fmt::format("{} of {} ranks have waited up to {} s in the start-up: {} did not join{}",
                  joined_, ranks_.size(), report_ns / second_ns, missing(), turned_away()),
      LogTopic::bootstrap);
}

// Who has come and gone is not.
std::string Server::missing() const {
  std::string names;
  for (std::size_t r = 0; r < names_.size(); ++r) {
    if (names_[r].empty()) names += fmt::format("{}rank {}", names.empty() ? "" : ", ", r);
  }
  return names;
}

void Server::serve(const std::atomic<bool>& stop, int wake) {
  std::vector<pollfd> waits;
  while (!stop) {
    const bool listens = monotonic_ns() >= deaf_until_ && has_room();
    waits = {{listens ? listener_.get() : -1, POLLIN, 0}, {wake, POLLIN, 0}};
    for (const Guest& guest : guests_) {
      const auto events = static_cast<short>(guest.out.empty() ? POLLIN : POLLIN | POLLOUT);
      waits.push_back({guest.fd.get(), events, 0});
    }
    // An id that nobody uses costs no turns.
    const bool deserted = !one_meeting_ && listens && guests_.empty() && ranks_.empty();
    poll(waits.data(), waits.size(), deserted && wake >= 0 ? -1 : tick_ms);
    const std::string own = take_own_failure();  // what a rank here has said before comes first
    for (Guest& guest : guests_) {
      if (!guest.proved) greet(guest);
      if (guest.proved && !guest.joined && !guest.gone) hear_name(guest);
      if (guest.joined && !guest.gone) read(guest);
    }
    hear_failures();
    if (!own.empty() && !complete()) fail_all(own);
    finish_round();
    check_leavers();
    check_absent();
    for (Guest& guest : guests_) {
      if (guest.joined && !guest.gone) write(guest);
    }
    guests_.remove_if([](const Guest& guest) { return guest.gone; });
    const auto seated = [](const Guest* guest) { return guest != nullptr; };
    // Who comes too late is told why.
    if (gives_back_.exchange(false, std::memory_order_relaxed) && !failure_.empty()) {
      listener_.reset();
    }
    const bool deaf = !listener_ || all_have_heard() || monotonic_ns() > give_up_at_;
    const bool failed = !failure_.empty() && deaf;
    note_debt(failure_.empty() ? !ranks_.empty() && !complete() : !deaf);
    const bool over = complete() || failed;
    if (over && std::none_of(ranks_.begin(), ranks_.end(), seated)) return;
    if (listener_) welcome();
  }
}

// The servers of this process; they end with it at the latest.
class Servers {
 public:
  static Servers& instance() { return PerProcess<Servers>::get(); }
  void start(std::unique_ptr<Server> server) {
    const std::lock_guard lock(mutex_);
    running_.remove_if([](const Running& one) { return one.over.load(); });
    running_.emplace_back(std::move(server), stop_, wake_.get());
  }
  // Another start needs a port that one which has failed may have.
  void give_ports_back() {
    const std::lock_guard lock(mutex_);
    for (Running& one : running_) one.server->give_port_back();
  }
  void cannot_join(const UniqueId& id, const std::string& why) {
    const std::lock_guard lock(mutex_);
    for (Running& one : running_) {
      if (one.server->serves(id)) one.server->cannot_join(why);
    }
  }
  void stop() {
    await_parting();
    stop_ = true;
    constexpr std::uint64_t once = 1;
    if (wake_) [[maybe_unused]]
      const auto woken = ::write(wake_.get(), &once, sizeof once);
    const std::lock_guard lock(mutex_);
    running_.clear();
  }

 private:
  struct Running {
    Running(std::unique_ptr<Server> one, const std::atomic<bool>& stop, int wake)
        : server(std::move(one)), thread([this, &stop, wake] {
            const Error error = without_throwing([&] {
              server->serve(stop, wake);
              return Error();
            });
            server->hang_up();
            if (error) log(LogLevel::error, fmt::format("bootstrap root: {}", error.message()));
            over = true;
          }) {}
    const std::unique_ptr<Server> server;
    std::atomic<bool> over{false};
    std::jthread thread;
  };
  // Ranks that come a little late to a start that has failed are to hear why.
  void await_parting() {
    const std::uint64_t until = monotonic_ns() + parting_ns;
    const auto owes = [](const Running& one) { return !one.over && one.server->owes_word(); };
    {
      const std::lock_guard lock(mutex_);
      for (Running& one : running_) {
        if (owes(one)) one.server->cannot_join("the process where the ranks meet has ended");
      }
    }
    while (monotonic_ns() < until) {
      {
        const std::lock_guard lock(mutex_);
        if (std::none_of(running_.begin(), running_.end(), owes)) return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  std::mutex mutex_;
  std::atomic<bool> stop_{false};
  Descriptor wake_{open_with_room([] { return eventfd(0, EFD_CLOEXEC); })};
  std::list<Running> running_;  // joins those it lets go of
};

void tell_choice(const Settings& settings) {
  const Expected<HostChoice> choice = explain_root_host(settings);
  if (!choice) return;
  log(LogLevel::debug,
      fmt::format("bootstrap root: interfaces are {}; listens at {} ({})",
                  fmt::join(choice->considered, ", "), choice->host, choice->why),
      LogTopic::bootstrap);
}

}  // namespace

Expected<UniqueId> Rendezvous::open(const Settings& settings) {
  const Expected<std::string> host = root_host(settings);
  if (!host) return host.error();
  if (logs(LogLevel::debug)) tell_choice(settings);
  return open(*host, settings.wait_for_ranks_s(), {settings.port_first, settings.port_last});
}

Expected<UniqueId> Rendezvous::open(const std::string& host, double timeout_s, PortRange ports) {
  Expected<Descriptor> listener = listen_on(host, ports);
  if (!listener) return listener.error();
  const Expected<Address> address = local_address(listener->get());
  if (!address) return address.error();
  UniqueId id;
  id.address = format_address(*address);
  if (Error error = fill_random(id.secret)) return error;
  Servers::instance().start(std::make_unique<Server>(std::move(*listener), id, timeout_s));
  return id;
}

Error Rendezvous::open_at(const std::string& host, const PortRange& port, const UniqueId& id,
                          double timeout_s, const std::string& before) {
  Expected<Descriptor> listener = listen_on(host, port);
  if (!listener) Servers::instance().give_ports_back();
  if (!listener) return listener.error();
  Servers::instance().start(std::make_unique<Server>(std::move(*listener), id, timeout_s, before));
  return {};
}

void Rendezvous::cannot_join(const UniqueId& id, const Error& error) {
  Servers::instance().cannot_join(id, error.message());
}

}  // namespace pith
