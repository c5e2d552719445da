// How a communicator comes to be: from a meeting of its ranks, or all at once in one process.
#include <fmt/format.h>

#include <thread>

#include "comm/communicator.hpp"
#include "comm/meeting.hpp"
#include "comm/rendezvous.hpp"
#include "core/clock.hpp"
#include "core/log.hpp"
#include "transport/local.hpp"

namespace pith {

namespace {

constexpr std::uint64_t goodbye_ns = 1'000'000'000;

// More local ranks than cores: waiting must not keep the others from running.
bool oversubscribed(std::size_t local_ranks) {
  const unsigned cores = std::thread::hardware_concurrency();
  return cores != 0 && local_ranks > cores;
}

}  // namespace

Error Communicator::read_forced(const std::string& text) {
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const Algorithm* found = nullptr;
    std::string known;
    for (const Algorithm& algorithm : algorithms()) {
      const std::string name = fmt::format("{}:{}", name_of(algorithm.collective), algorithm.name);
      known += (known.empty() ? "" : ", ") + name;
      if (name == item) found = &algorithm;
    }
    if (!found) {
      return {Code::invalid_argument,
              fmt::format("PITH_ALGO names \"{}\", known are {}", item, known)};
    }
    if (size() > found->ranks_max) {
      return {Code::invalid_argument,
              fmt::format("PITH_ALGO names \"{}\", which serves up to {} ranks, not {}", item,
                          found->ranks_max, size())};
    }
    forced_[index(found->collective)] = found;
  }
  return {};
}

void Communicator::add_transport(std::unique_ptr<Transport> transport) {
  engine_->add(*transport);
  transports_.push_back(std::move(transport));
}

Expected<std::unique_ptr<Communicator>> Communicator::init_rank(const UniqueId& id, int rank,
                                                                int ranks) {
  const Expected<Settings> settings = settings_from_environment();
  if (!settings) return settings.error();
  set_log_level(settings->log);
  std::unique_ptr<Communicator> made(new Communicator(rank, ranks, *settings));
  if (Error error = made->read_forced(settings->algo)) return error;
  if (Error error = made->connect(id, *settings)) return error;
  return made;
}

Error Communicator::connect(const UniqueId& id, const Settings& settings) {
  Meeting meeting(*engine_, rank(), size(), id, settings);
  if (Error error = meeting.hold()) return error;
  set_views(meeting.all_share_memory, meeting.any_share_memory);
  const bool loopback = settings.host.starts_with("127.") || settings.host == "::1";
  const auto ranks = static_cast<std::size_t>(size());
  engine_->set_oversubscribed(oversubscribed(loopback ? ranks : meeting.local_ranks));
  for (std::size_t r = 0; r < ranks; ++r) {
    if (static_cast<int>(r) == rank()) continue;
    routes_[r] = {meeting.route_to(r), static_cast<int>(r)};
  }
  const auto lost = [this](int, const Error& error) { revoke(error); };
  if (meeting.shm) {
    meeting.shm->on_peer_lost = lost;
    closers_.push_back([shm = meeting.shm.get()] { shm->close(); });
    add_transport(std::move(meeting.shm));
  }
  if (meeting.ucx) {
    meeting.ucx->on_peer_lost = lost;
    closers_.push_back([ucx = meeting.ucx.get()] { ucx->close(monotonic_ns() + goodbye_ns); });
    add_transport(std::move(meeting.ucx));
  }
  if (meeting.tcp) {
    meeting.tcp->on_peer_lost = lost;
    closers_.push_back([tcp = meeting.tcp.get()] { tcp->close(monotonic_ns() + goodbye_ns); });
    add_transport(std::move(meeting.tcp));
  }
  return {};
}

Expected<std::vector<std::unique_ptr<Communicator>>> Communicator::init_all(int ranks) {
  const Expected<Settings> settings = settings_from_environment();
  if (!settings) return settings.error();
  set_log_level(settings->log);
  std::vector<std::unique_ptr<Communicator>> made(static_cast<std::size_t>(ranks));
  const TransportRule rule(settings->transport);
  if (rule.order().empty() || rule.order().front() != "local") {
    // The transports between processes also serve ranks of one process, each started by a thread.
    const Expected<UniqueId> id = Rendezvous::open(settings->host, settings->init_timeout);
    if (!id) return id.error();
    std::vector<Error> errors(made.size());
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < made.size(); ++r) {
      threads.emplace_back([&, r] {
        Expected<std::unique_ptr<Communicator>> one = init_rank(*id, static_cast<int>(r), ranks);
        if (one) {
          made[r] = std::move(*one);
        } else {
          errors[r] = one.error();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Error& error : errors) {
      if (error) return error;
    }
    return made;
  }
  const Expected<std::shared_ptr<LocalHub>> hub = LocalHub::create(ranks);
  if (!hub) return hub.error();
  for (int r = 0; r < ranks; ++r) {
    std::unique_ptr<Communicator> one(new Communicator(r, ranks, *settings));
    if (Error error = one->read_forced(settings->algo)) return error;
    auto local = std::make_unique<LocalTransport>(one->engine_->scheduler(),
                                                  one->engine_->mailbox(), r, *hub);
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer != r) one->routes_[static_cast<std::size_t>(peer)] = {local.get(), peer};
    }
    one->engine_->set_oversubscribed(oversubscribed(static_cast<std::size_t>(ranks)));
    one->add_transport(std::move(local));
    one->set_views(true, true);
    made[static_cast<std::size_t>(r)] = std::move(one);
  }
  return made;
}

}  // namespace pith
