// How a communicator comes to be: meet at the bootstrap root, agree on the settings, attach over
// shared memory where that works, connect by TCP everywhere else.
#include <fmt/format.h>

#include <thread>

#include "comm/blob.hpp"
#include "comm/bootstrap.hpp"
#include "comm/communicator.hpp"
#include "comm/rendezvous.hpp"
#include "core/clock.hpp"
#include "core/log.hpp"
#include "transport/local.hpp"
#include "transport/shm.hpp"
#include "transport/tcp.hpp"

namespace pith {

namespace {

constexpr std::uint64_t goodbye_ns = 1'000'000'000;

bool allows(const Settings& settings, std::string_view transport) {
  return settings.transport.empty() || settings.transport.find(transport) != std::string::npos;
}

// More local ranks than cores: waiting must not keep the others from running.
bool oversubscribed(std::size_t local_ranks) {
  const unsigned cores = std::thread::hardware_concurrency();
  return cores != 0 && local_ranks > cores;
}

// What a rank tells the others before they attach.
struct Introduction {
  std::string settings;
  std::string shm_name;
  std::string tcp_address;

  std::string pack() const { return join_strings({settings, shm_name, tcp_address}); }
  static Introduction unpack(std::string_view blob) {
    std::vector<std::string> strings = split_strings(blob);
    strings.resize(3);
    return {strings[0], strings[1], strings[2]};
  }
};

std::string flags_of(const std::vector<bool>& flags) {
  std::string text;
  for (const bool flag : flags) text += flag ? '1' : '0';
  return text;
}

Error check_settings(const std::vector<Introduction>& all, int rank) {
  const std::string& ours = all[static_cast<std::size_t>(rank)].settings;
  for (std::size_t r = 0; r < all.size(); ++r) {
    const std::string differs = difference(all[r].settings, ours);
    if (differs.empty()) continue;
    return {Code::invalid_usage,
            fmt::format("rank {} and rank {} disagree on a setting that all must share: {}", r,
                        rank, differs),
            static_cast<int>(r)};
  }
  return {};
}

// matrix[a][b] == '1': rank a has attached rank b.
using Matrix = std::vector<std::string>;

bool attach_each_other(const Matrix& matrix, std::size_t a, std::size_t b) {
  const auto attached = [&](std::size_t from, std::size_t to) {
    return matrix[from].size() == matrix.size() && matrix[from][to] == '1';
  };
  return attached(a, b) && attached(b, a);
}

struct SharedPairs {
  bool all = true;
  bool any = false;
};

SharedPairs count_pairs(const Matrix& matrix) {
  SharedPairs pairs;
  for (std::size_t a = 0; a < matrix.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      const bool shared = attach_each_other(matrix, a, b);
      pairs.all = pairs.all && shared;
      pairs.any = pairs.any || shared;
    }
  }
  return pairs;
}

}  // namespace

Error Communicator::read_forced(const std::string& text) {
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const std::size_t colon = item.find(':');
    const Algorithm* found = nullptr;
    std::string known;
    for (const Algorithm& algorithm : algorithms()) {
      const std::string name = fmt::format("{}:{}", name_of(algorithm.collective), algorithm.name);
      known += (known.empty() ? "" : ", ") + name;
      if (name == item) found = &algorithm;
    }
    if (!found || colon == std::string_view::npos) {
      return {Code::invalid_argument,
              fmt::format("PITH_ALGO names \"{}\", known are {}", item, known)};
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
  Expected<Bootstrap> bootstrap = Bootstrap::join(id, rank(), size(), settings.init_timeout);
  if (!bootstrap) return bootstrap.error();

  auto shm = std::make_unique<ShmTransport>(engine_->scheduler(), engine_->mailbox(), rank(),
                                            size(), id.secret);
  TcpOptions options;
  options.streams = settings.streams;
  auto tcp = std::make_unique<TcpTransport>(engine_->scheduler(), engine_->mailbox(), rank(),
                                            size(), id.secret, options);
  Introduction mine{agreed_text(settings), {}, {}};
  if (allows(settings, "shm")) {
    // A host that forbids memory files still has sockets.
    if (Expected<std::string> name = shm->listen()) mine.shm_name = *name;
  }
  if (allows(settings, "tcp")) {
    Expected<std::string> address = tcp->listen(settings.host);
    if (!address) return address.error();
    mine.tcp_address = *address;
  }

  Expected<std::vector<std::string>> blobs = bootstrap->gather(mine.pack());
  if (!blobs) return blobs.error();
  std::vector<Introduction> all;
  for (const std::string& blob : *blobs) all.push_back(Introduction::unpack(blob));
  if (Error error = check_settings(all, rank())) return error;
  std::vector<std::string> names;
  std::vector<std::string> addresses;
  for (const Introduction& one : all) {
    names.push_back(one.shm_name);
    addresses.push_back(one.tcp_address);
  }

  std::vector<bool> attached(all.size(), false);
  if (!mine.shm_name.empty()) {
    if (Error error = shm->attach(names, attached, bootstrap->deadline_ns())) return error;
  }
  Expected<std::vector<std::string>> matrix = bootstrap->gather(flags_of(attached));
  if (!matrix) return matrix.error();
  const auto self = static_cast<std::size_t>(rank());
  const SharedPairs shared = count_pairs(*matrix);
  set_views(shared.all, shared.any);
  std::vector<std::uint8_t> by_tcp(all.size(), 0);
  std::size_t local_ranks = 1;
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (r == self) continue;
    const bool both = attach_each_other(*matrix, r, self);
    if (attached[r] && !both) shm->drop(static_cast<int>(r));
    routes_[r] = {both ? static_cast<Transport*>(shm.get()) : tcp.get(), static_cast<int>(r)};
    by_tcp[r] = !both;
    local_ranks += both;
    if (!both && !allows(settings, "tcp")) {
      return {Code::system,
              fmt::format("rank {} and rank {} share no memory, and PITH_TRANSPORT={} allows "
                          "nothing else",
                          rank(), r, settings.transport),
              static_cast<int>(r)};
    }
  }
  const bool any_tcp = local_ranks < all.size();
  if (any_tcp) {
    if (Error error = tcp->connect(addresses, by_tcp, bootstrap->deadline_ns())) return error;
  }
  Expected<std::vector<std::string>> connected = bootstrap->gather("connected");
  if (!connected) return connected.error();

  const bool loopback = settings.host.starts_with("127.") || settings.host == "::1";
  engine_->set_oversubscribed(oversubscribed(loopback ? all.size() : local_ranks));
  const auto lost = [this](int, const Error& error) { revoke(error); };
  if (local_ranks > 1) {
    shm->on_peer_lost = lost;
    closers_.push_back([transport = shm.get()] { transport->close(); });
    add_transport(std::move(shm));
  }
  if (any_tcp) {
    tcp->on_peer_lost = lost;
    closers_.push_back([transport = tcp.get()] { transport->close(monotonic_ns() + goodbye_ns); });
    add_transport(std::move(tcp));
  }
  return {};
}

Expected<std::vector<std::unique_ptr<Communicator>>> Communicator::init_all(int ranks) {
  const Expected<Settings> settings = settings_from_environment();
  if (!settings) return settings.error();
  set_log_level(settings->log);
  std::vector<std::unique_ptr<Communicator>> made(static_cast<std::size_t>(ranks));
  if (!allows(*settings, "local")) {
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
