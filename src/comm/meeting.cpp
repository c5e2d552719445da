#include "comm/meeting.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "comm/blob.hpp"

namespace pith {

namespace {

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

// Of "host:port"; empty for a rank without TCP, and such ranks share memory or do not start.
std::string_view host_part(std::string_view address) {
  return address.substr(0, std::min(address.size(), address.rfind(':')));
}

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

}  // namespace

bool allows(const Settings& settings, std::string_view transport) {
  return settings.transport.empty() || settings.transport.find(transport) != std::string::npos;
}

Meeting::Meeting(Engine& engine, int rank, int ranks, const ControlSeat& seat, Gatherer& gatherer,
                 const Settings& settings)
    : by_tcp(static_cast<std::size_t>(ranks), 0),
      rank_(rank),
      ranks_(static_cast<std::size_t>(ranks)),
      host_(seat.host()),
      gatherer_(gatherer),
      settings_(settings) {
  TcpOptions options;
  options.streams = settings.streams;
  options.ports = {settings.port_first, settings.port_last};
  shm = std::make_unique<ShmTransport>(engine.scheduler(), engine.mailbox(), rank, ranks,
                                       seat.secret());
  tcp = std::make_unique<TcpTransport>(engine.scheduler(), engine.mailbox(), rank, ranks,
                                       seat.secret(), options);
}

Error Meeting::hold() {
  if (Error error = introduce()) return error;
  if (Error error = attach()) return error;
  return connect();
}

Error Meeting::introduce() {
  Introduction mine{agreed_text(settings_), {}, {}};
  if (allows(settings_, "shm")) {
    // A host that forbids memory files still has sockets.
    if (Expected<std::string> name = shm->listen()) mine.shm_name = *name;
  }
  if (allows(settings_, "tcp")) {
    Expected<std::string> address = tcp->listen(host_);
    if (!address) return address.error();
    mine.tcp_address = *address;
  }
  Expected<std::vector<std::string>> blobs = gatherer_.gather(mine.pack());
  if (!blobs) return blobs.error();
  std::vector<Introduction> all;
  for (const std::string& blob : *blobs) all.push_back(Introduction::unpack(blob));
  if (Error error = check_settings(all, rank_)) return error;
  for (const Introduction& one : all) {
    names_.push_back(one.shm_name);
    addresses_.push_back(one.tcp_address);
  }
  const auto is_here = [host = host_part(mine.tcp_address)](const std::string& address) {
    return host_part(address) == host;
  };
  host_ranks =
      static_cast<std::size_t>(std::count_if(addresses_.begin(), addresses_.end(), is_here));
  return {};
}

Error Meeting::attach() {
  std::vector<bool> attached(ranks_, false);
  if (!names_[static_cast<std::size_t>(rank_)].empty()) {
    if (Error error = shm->attach(names_, attached, gatherer_.patience())) return error;
  }
  // The deadline may fall between the two ends of a pair: only what both have counts.
  Expected<Matrix> matrix = gatherer_.gather(flags_of(attached));
  if (!matrix) return matrix.error();
  for (std::size_t a = 0; a < ranks_; ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      const bool shared = attach_each_other(*matrix, a, b);
      all_share_memory = all_share_memory && shared;
      any_share_memory = any_share_memory || shared;
    }
  }
  const auto self = static_cast<std::size_t>(rank_);
  for (std::size_t r = 0; r < ranks_; ++r) {
    if (r == self) continue;
    const bool shared = attach_each_other(*matrix, r, self);
    if (attached[r] && !shared) shm->drop(static_cast<int>(r));
    by_tcp[r] = !shared;
    local_ranks += shared;
  }
  if (local_ranks == 1) shm.reset();
  return {};
}

Error Meeting::connect() {
  const auto first = std::find(by_tcp.begin(), by_tcp.end(), 1);
  if (first == by_tcp.end()) {
    tcp.reset();
    return {};
  }
  if (!allows(settings_, "tcp")) {
    const auto other = static_cast<int>(first - by_tcp.begin());
    return {Code::system,
            fmt::format("rank {} and rank {} share no memory, and PITH_TRANSPORT={} allows nothing "
                        "else",
                        rank_, other, settings_.transport),
            other};
  }
  const Error error = tcp->connect(addresses_, by_tcp, gatherer_.patience());
  if (!error) return {};
  const Error cause = gatherer_.failure();
  return cause ? cause : error;
}

}  // namespace pith
