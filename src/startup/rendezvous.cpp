#include "startup/rendezvous.hpp"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <thread>

#include "core/clock.hpp"
#include "core/descriptor_limit.hpp"
#include "core/log.hpp"
#include "core/per_process.hpp"
#include "core/run_together.hpp"
#include "crypto/random_bytes.hpp"
#include "startup/bootstrap_server.hpp"
#include "startup/listen_host.hpp"

namespace pith {

namespace {

// At the end of the process: how long late ranks of a failed start can still be told.
constexpr std::uint64_t parting_ns = 1'000'000'000;

// The bootstrap servers of this process; their threads end with it at the latest.
class Servers {
 public:
  static Servers& instance() { return PerProcess<Servers>::get(); }
  void start(std::unique_ptr<BootstrapServer> server) {
    const std::lock_guard lock(mutex_);
    running_.remove_if([](const Running& one) { return one.over.load(); });
    running_.emplace_back(std::move(server), stop_, wake_.get());
  }
  // Another start may need a port that a failed one still holds.
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
    Running(std::unique_ptr<BootstrapServer> one, const std::atomic<bool>& stop, int wake)
        : server(std::move(one)), thread([this, &stop, wake] {
            const Error error = without_throwing([&] {
              server->serve(stop, wake);
              return Error();
            });
            server->hang_up();
            if (error) log(LogLevel::error, fmt::format("bootstrap root: {}", error.message()));
            over = true;
          }) {}
    const std::unique_ptr<BootstrapServer> server;
    std::atomic<bool> over{false};
    std::jthread thread;
  };
  // Late ranks of an unfinished or failed start are told why, before the process ends.
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
  std::list<Running> running_;  // erasing one joins its thread
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
  if (Error error = fill_random(id.secret)) return error;
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
