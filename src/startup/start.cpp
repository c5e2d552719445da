#include "startup/start.hpp"

#include <fmt/format.h>

#include <chrono>
#include <mutex>
#include <optional>
#include <thread>

#include "core/clock.hpp"
#include "core/log.hpp"
#include "core/per_process.hpp"
#include "settings/settings_origin.hpp"
#include "startup/bootstrap.hpp"
#include "startup/job_secret.hpp"
#include "startup/listen_host.hpp"
#include "startup/pmi_wire.hpp"
#include "startup/pmix_client.hpp"
#include "startup/rendezvous.hpp"
#include "startup/root_place.hpp"

namespace pith {

namespace {

constexpr std::uint64_t second_ns = 1'000'000'000;
// How long a previous root of this job may still hold the port.
constexpr std::uint64_t rebind_ns = 2 * second_ns;

std::uint64_t deadline_of(const Settings& settings) {
  return monotonic_ns() + static_cast<std::uint64_t>(settings.wait_for_ranks_s() * 1e9);
}

std::string to_hex(std::span<const char> bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

Expected<UniqueId> from_hex(std::string_view text) {
  char bytes[UniqueId::bytes] = {};
  constexpr std::string_view digits = "0123456789abcdef";
  for (std::size_t i = 0; i < sizeof bytes && text.size() == 2 * sizeof bytes; ++i) {
    const std::size_t high = digits.find(text[2 * i]);
    const std::size_t low = digits.find(text[2 * i + 1]);
    if (high > 15 || low > 15) break;
    bytes[i] = static_cast<char>(high * 16 + low);
  }
  Expected<UniqueId> id = UniqueId::load(bytes);
  if (id) return id;
  return Error(Code::system, "what came through the launcher is no id of rank 0");
}

std::string to_text(const UniqueId& id) {
  char bytes[UniqueId::bytes];
  id.store(bytes);
  return to_hex(bytes);
}

// Launchers report a timeout at most, so the message adds which setting limits it.
Error not_all_came(const Error& error, const Settings& settings) {
  const bool longer = settings.join_timeout > settings.init_timeout;
  return {Code::remote,
          fmt::format("not all ranks of the job came within {:g} s ({}): {}",
                      settings.wait_for_ranks_s(),
                      variable_of(longer ? "JOIN_TIMEOUT" : "INIT_TIMEOUT"), error.message())};
}

// Passes ids through the launcher. The connection to it stays open until the process ends, as
// launchers allow one init and one finalize a process.
class Exchange {
 public:
  static Exchange& instance() { return PerProcess<Exchange>::get(); }

  Expected<UniqueId> hand_out(const Launch& launch, const Settings& settings) {
    const std::lock_guard lock(mutex_);
    if (stopped_) return Error(Code::invalid_usage, "the process is ending");
    const std::string key = fmt::format("pith-id-{}", count_++);
    std::string mine;
    Expected<UniqueId> id = UniqueId();
    if (launch.rank == 0) {
      id = open_root(launch, settings);
      if (!id) return id;
      mine = to_text(*id);
    }
    const std::uint64_t deadline = deadline_of(settings);
    const Expected<std::string> told = launch.way == Launch::Way::pmi
                                           ? by_pmi(launch, key, mine, deadline)
                                           : by_pmix(key, mine, settings);
    if (!told && monotonic_ns() >= deadline) return not_all_came(told.error(), settings);
    if (!told) return told.error();
    return launch.rank == 0 ? id : from_hex(*told);
  }

  // Called at process exit.
  void stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    pmi_.reset();
    pmix_.reset();
  }

 private:
  // The id carries a random secret. Where all ranks share a host, the root listens on loopback
  // only.
  static Expected<UniqueId> open_root(const Launch& launch, const Settings& settings) {
    if (!launch.one_host || !settings.host.empty() || !settings.ifname.empty()) {
      return Rendezvous::open(settings);
    }
    return Rendezvous::open(settings.socket_family == "AF_INET6" ? "::1" : "127.0.0.1",
                            settings.wait_for_ranks_s(), settings.ports);
  }

  Expected<std::string> by_pmi(const Launch& launch, const std::string& key,
                               const std::string& mine, std::uint64_t deadline) {
    if (!pmi_) {
      Expected<PmiWire> wire = PmiWire::open(launch.pmi_fd, deadline);
      if (!wire) return wire.error();
      pmi_ = std::move(*wire);
    }
    if (!mine.empty()) {
      if (Error error = pmi_->put(key, mine, deadline)) return error;
    }
    if (Error error = pmi_->barrier(deadline)) return error;
    return mine.empty() ? pmi_->get(key, deadline) : mine;
  }

  Expected<std::string> by_pmix(const std::string& key, const std::string& mine,
                                const Settings& settings) {
    if (!pmix_) {
      Expected<PmixClient> client = PmixClient::open();
      if (!client) return client.error();
      pmix_ = std::move(*client);
    }
    if (!mine.empty()) {
      if (Error error = pmix_->put(key, mine)) return error;
    }
    if (Error error = pmix_->fence(settings.wait_for_ranks_s())) return error;
    if (!mine.empty()) return mine;
    return pmix_->get(0, key, settings.wait_for_ranks_s());
  }

  std::mutex mutex_;
  bool stopped_ = false;
  unsigned count_ = 0;
  std::optional<PmiWire> pmi_;
  std::optional<PmixClient> pmix_;
};

// Without a secret, unauthenticated peers on the network could join, so only loopback is allowed.
Expected<Secret> secret_for(const Launch& launch, const RootPlace& place,
                            const Settings& settings) {
  const Expected<std::string> text = secret_text(settings);
  if (!text) return text.error();
  if (text->empty() && !place.loopback) {
    if (settings.tcp.encrypt) {
      return Error(Code::invalid_usage,
                   "PITH_ENCRYPT is 1 and there is no secret that keys could be made of: set "
                   "PITH_SECRET or PITH_SECRET_FILE to the same on all ranks");
    }
    if (!settings.insecure) {
      return Error(Code::invalid_usage,
                   fmt::format("ranks started by {} meet at {}, which other hosts can reach, and "
                               "there is no secret: set PITH_SECRET or PITH_SECRET_FILE to the "
                               "same on all ranks, or PITH_INSECURE=1 on a network you trust",
                               launch.launcher, place.address));
    }
    log(LogLevel::warn,
        fmt::format("PITH_INSECURE=1: whoever reaches {} can join this job", place.address));
  }
  return derive_secret(*text, launch.job);
}

// The port is taken. If another rank 0 of this job holds it, joining its root tells both.
Error who_listens(const Launch& launch, const UniqueId& id, const Error& error) {
  Expected<Bootstrap> joined = Bootstrap::join(id, 0, launch.size, 0);
  if (joined) {
    const Error said = joined->gather("").error();
    return {Code::remote,
            fmt::format("rank 0 is to listen at {}, by {}, and another rank 0 does so already: {}",
                        id.address, launch.root_variable(), said.message())};
  }
  return {error.code(),
          fmt::format("rank 0 is to listen at {}, by {}: {} (for {} s); another "
                      "job may be using that port",
                      id.address, launch.root_variable(), error.message(), rebind_ns / second_ns)};
}

// Ranks that connected meanwhile may have reached another job.
std::string in_use_before(const Launch& launch, std::uint64_t waited_ns) {
  if (waited_ns < second_ns / 10) return {};  // held by a previous root of this job
  return fmt::format("; port {} was in use for {:.1f} s before that, perhaps by another job",
                     launch.port, static_cast<double>(waited_ns) * 1e-9);
}

Error listen_at(const RootPlace& place, const Launch& launch, const UniqueId& id,
                const Settings& settings) {
  const std::uint64_t begun = monotonic_ns();
  std::uint64_t waited = 0;
  while (true) {
    const Error error =
        Rendezvous::open_at(place.listen, {launch.port, launch.port, launch.port_by}, id,
                            settings.wait_for_ranks_s(), in_use_before(launch, waited));
    if (!error) return {};
    waited = monotonic_ns() - begun;
    if (waited > rebind_ns) return who_listens(launch, id, error);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

Expected<UniqueId> meet_at_address(const Launch& launch, const Settings& settings) {
  const Expected<RootPlace> place = find_root(launch, settings);
  if (!place) return place.error();
  const Expected<Secret> secret = secret_for(launch, *place, settings);
  if (!secret) return secret.error();
  UniqueId id;
  id.secret = *secret;
  id.address = place->address;
  id.known_before = true;
  if (launch.rank != 0) return id;
  if (Error error = listen_at(*place, launch, id, settings)) return error;
  return id;
}

}  // namespace

Expected<Start> start_from_environment(const Settings& settings) {
  const Expected<Launch> launch =
      read_launch(variables_from_environment(launch_variables()), settings);
  if (!launch) return launch.error();
  log(LogLevel::debug,
      fmt::format("rank {} of {}, by {}: {}", launch->rank, launch->size, launch->launcher,
                  launch->way == Launch::Way::address
                      ? fmt::format("rank 0 is at {} port {} ({})", launch->host, launch->port,
                                    launch->root_variable())
                      : "rank 0's address comes through the launcher"));
  Start start{launch->rank, launch->size, {}};
  const Expected<UniqueId> id = launch->way == Launch::Way::address
                                    ? meet_at_address(*launch, settings)
                                    : Exchange::instance().hand_out(*launch, settings);
  if (!id) return id.error();
  start.id = *id;
  return start;
}

}  // namespace pith
