#include "startup/rendezvous.hpp"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <latch>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "core/clock.hpp"
#include "core/descriptor_limit.hpp"
#include "core/log.hpp"
#include "core/per_process.hpp"
#include "core/run_together.hpp"
#include "startup/bootstrap_server.hpp"
#include "startup/listen_host.hpp"
#include "transport/descriptor_table.hpp"

namespace pith {

namespace {

// At the end of the process: how long late ranks of a failed start can still be told.
constexpr std::uint64_t parting_ns = 1'000'000'000;

// Runs a server in the background. It keeps a connection for each rank, so it runs on a thread with
// its own table of descriptors where the system can do that: the process that ranks meet in then
// has as many left as the others. What that thread logs is written by a second one, which shares
// the process's table.
class RootThread {
 public:
  // Both must outlive it; `wake` is a descriptor that is readable once `stop` is set.
  RootThread(std::unique_ptr<BootstrapServer> server, const std::atomic<bool>& stop, int wake);

  BootstrapServer& server() { return *server_; }
  // The start is over, and its connections and the listener are closed.
  bool over() const { return over_; }

 private:
  // From the serving thread to the one that writes them.
  class Lines {
   public:
    void put(LogLevel level, const std::string& text, LogTopic topic);
    void end();
    // Writes lines until end() has been called.
    void write();

   private:
    struct Line {
      LogLevel level;
      std::string text;
      LogTopic topic;
    };
    std::mutex mutex_;
    std::condition_variable news_;
    std::deque<Line> lines_;
    bool ended_ = false;
  };

  void run(const std::atomic<bool>& stop, int wake);
  void serve(const std::atomic<bool>& stop, int wake);

  const std::unique_ptr<BootstrapServer> server_;
  Lines lines_;
  std::atomic<bool> over_{false};
  std::jthread thread_;
};

void RootThread::Lines::put(LogLevel level, const std::string& text, LogTopic topic) {
  const std::lock_guard lock(mutex_);
  lines_.push_back({level, text, topic});
  news_.notify_one();
}

void RootThread::Lines::end() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  news_.notify_one();
}

void RootThread::Lines::write() {
  std::unique_lock lock(mutex_);
  while (!ended_ || !lines_.empty()) {
    news_.wait(lock, [this] { return ended_ || !lines_.empty(); });
    for (const Line& line : std::exchange(lines_, {})) {
      lock.unlock();
      log(line.level, line.text, line.topic);
      lock.lock();
    }
  }
}

RootThread::RootThread(std::unique_ptr<BootstrapServer> server, const std::atomic<bool>& stop,
                       int wake)
    : server_(std::move(server)), thread_([this, &stop, wake] {
        run(stop, wake);
        over_ = true;
      }) {}

void RootThread::serve(const std::atomic<bool>& stop, int wake) {
  const Error error = without_throwing([&] {
    server_->serve(stop, wake);
    return Error();
  });
  server_->hang_up();
  if (error) log(LogLevel::error, fmt::format("bootstrap root: {}", error.message()));
}

// The listener is closed in the process's table before the first rank is accepted: the port must be
// free as soon as the server closes it.
void RootThread::run(const std::atomic<bool>& stop, int wake) {
  std::latch apart(1);
  std::latch handed_over(1);
  bool own_table = false;
  const auto serve_apart = [&] {
    const auto [listener, told_here] = server_->descriptors();
    const std::array kept = {listener.get(), told_here, wake};
    own_table = leave_descriptor_table(kept);
    apart.count_down();
    handed_over.wait();
    if (own_table) {
      route_log_of_this_thread([this](LogLevel level, const std::string& text, LogTopic topic) {
        lines_.put(level, text, topic);
      });
    }
    serve(stop, wake);
    lines_.end();
  };
  std::jthread serving;
  const Error not_started = without_throwing([&] {
    serving = std::jthread(serve_apart);
    return Error();
  });
  if (not_started) return serve(stop, wake);
  apart.wait();
  if (own_table) hand_over(server_->descriptors().listener);
  handed_over.count_down();
  lines_.write();
}

// The bootstrap servers of this process; their threads end with it at the latest.
class Servers {
 public:
  static Servers& instance() { return PerProcess<Servers>::get(); }
  void start(std::unique_ptr<BootstrapServer> server) {
    const std::lock_guard lock(mutex_);
    running_.remove_if([](const RootThread& one) { return one.over(); });
    running_.emplace_back(std::move(server), stop_, wake_.get());
  }
  // Another start may need a port that a failed one still holds.
  void give_ports_back() {
    const std::lock_guard lock(mutex_);
    for (RootThread& one : running_) one.server().give_port_back();
  }
  void cannot_join(const UniqueId& id, const std::string& why) {
    const std::lock_guard lock(mutex_);
    for (RootThread& one : running_) {
      if (one.server().serves(id)) one.server().cannot_join(why);
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
  // Late ranks of an unfinished or failed start are told why, before the process ends.
  void await_parting() {
    const std::uint64_t until = monotonic_ns() + parting_ns;
    const auto owes = [](RootThread& one) { return !one.over() && one.server().owes_word(); };
    {
      const std::lock_guard lock(mutex_);
      for (RootThread& one : running_) {
        if (owes(one)) one.server().cannot_join("the process where the ranks meet has ended");
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
  std::list<RootThread> running_;  // erasing one joins its threads
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

Expected<UniqueId> Rendezvous::open(const Settings& settings, int members) {
  const Expected<std::string> host = root_host(settings);
  if (!host) return host.error();
  if (logs(LogLevel::debug)) tell_choice(settings);
  return open(*host, settings.wait_for_ranks_s(), settings.ports, members);
}

Expected<UniqueId> Rendezvous::open(const std::string& host, double timeout_s, PortRange ports,
                                    int members) {
  Expected<Descriptor> listener = listen_on(host, ports);
  if (!listener) return listener.error();
  const Expected<Address> address = local_address(listener->get());
  if (!address) return address.error();
  UniqueId id;
  id.address = format_address(*address);
  id.members = members;
  const Expected<Secret> secret = make_secret();
  if (!secret) return secret.error();
  id.secret = *secret;
  Servers::instance().start(std::make_unique<BootstrapServer>(std::move(*listener), id, timeout_s));
  return id;
}

Error Rendezvous::open_at(const std::string& host, const PortRange& port, const UniqueId& id,
                          double timeout_s, const std::string& before) {
  Expected<Descriptor> listener = listen_on(host, port);
  if (!listener) Servers::instance().give_ports_back();
  if (!listener) return listener.error();
  Servers::instance().start(
      std::make_unique<BootstrapServer>(std::move(*listener), id, timeout_s, before));
  return {};
}

void Rendezvous::cannot_join(const UniqueId& id, const Error& error) {
  Servers::instance().cannot_join(id, error.message());
}

}  // namespace pith
