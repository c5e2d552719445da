// netlab_switch: an Ethernet switch in user space, with rates, delays, jitter and loss that can be
// changed while it runs, for kernels without netem.
//
//   netlab_switch [--mtu N] [--no-offload] [--seed N] NAMESPACE...
//
// Gives each namespace an interface eth0 and says "ready"; ports count from 0 in the order given.
// Then it obeys lines from standard input and answers each with one line: "ok", statistics, or
// "error: ...". It ends with its input, so it never outlives whoever started it. A port may be *.
//
//   rate PORT BITS_PER_S     both directions of a port's link; 0: no limit
//   uplink PORT BITS_PER_S   downlink PORT BITS_PER_S
//   delay FROM TO NS         jitter FROM TO NS       loss FROM TO PROBABILITY
//   queue BYTES              room of every link in each direction
//   port PORT up|silent|unplugged     silent: all is lost, and nobody is told
//   stats                    as JSON
#include <sched.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <system_error>

#include "fabric.hpp"
#include "taps.hpp"

namespace netlab {
namespace {

constexpr int frames_per_turn = 32;
constexpr std::size_t ports_max = 250;  // the last byte of a MAC address
constexpr int priority = 10;

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}

using Words = std::vector<std::string>;

double number(const std::string& text, double most) {
  double value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() || !(value >= 0 && value <= most)) {
    throw std::invalid_argument("'" + text + "' is no number from 0 to " + std::to_string(most));
  }
  return value;
}

std::uint64_t whole(const std::string& text) {
  return static_cast<std::uint64_t>(number(text, 1e18));
}

class Switch {
 public:
  Switch(const Words& namespaces, const TapOptions& options, std::uint64_t seed)
      : taps_(namespaces, options), fabric_(namespaces.size(), seed) {}

  void run();

 private:
  using Command = std::function<void(const Words&)>;
  std::map<std::string, std::pair<std::size_t, Command>> commands();
  void for_ports(const std::string& which, const std::function<void(std::size_t)>& change) const;
  void for_paths(const Words& words, const std::function<void(Path&)>& change);
  void set_state(std::size_t port, const std::string& state);
  std::string stats();
  std::string obey(const std::string& line);
  bool read_commands();
  void read_frames(std::size_t port);
  int wait(int poller, std::span<epoll_event> events) const;

  Taps taps_;
  Fabric fabric_;
  std::string input_;
};

void Switch::for_ports(const std::string& which,
                       const std::function<void(std::size_t)>& change) const {
  if (which != "*") {
    const std::uint64_t port = whole(which);
    if (port >= fabric_.ports()) {
      throw std::invalid_argument("port is " + which + ", expected * or 0 to " +
                                  std::to_string(fabric_.ports() - 1));
    }
    return change(port);
  }
  for (std::size_t port = 0; port < fabric_.ports(); ++port) change(port);
}

void Switch::for_paths(const Words& words, const std::function<void(Path&)>& change) {
  for_ports(words[1], [&](std::size_t from) {
    for_ports(words[2], [&](std::size_t to) { change(fabric_.path(from, to)); });
  });
}

void Switch::set_state(std::size_t port, const std::string& state) {
  if (state != "up" && state != "silent" && state != "unplugged") {
    throw std::invalid_argument("state is '" + state + "', expected up, silent or unplugged");
  }
  fabric_.port(port).silent = state != "up";
  taps_.set_carrier(port, state != "unplugged");
}

std::string Switch::stats() {
  nlohmann::json sent = nlohmann::json::array();
  nlohmann::json received = nlohmann::json::array();
  for (std::size_t port = 0; port < fabric_.ports(); ++port) {
    sent.push_back(fabric_.port(port).sent_bytes);
    received.push_back(fabric_.port(port).received_bytes);
  }
  return nlohmann::json{{"sent_bytes", sent},
                        {"received_bytes", received},
                        {"dropped", fabric_.dropped},
                        {"lost", fabric_.lost},
                        {"late_us_max", fabric_.late_ns_max / 1000}}
      .dump();
}

// By name: how many words it has, and what it does.
std::map<std::string, std::pair<std::size_t, Switch::Command>> Switch::commands() {
  const auto rate = [this](const Words& words, bool up, bool down) {
    const double bits_per_s = number(words[2], 1e12);
    for_ports(words[1], [&](std::size_t port) {
      if (up) fabric_.port(port).up.bits_per_s = bits_per_s;
      if (down) fabric_.port(port).down.bits_per_s = bits_per_s;
    });
  };
  return {
      {"rate", {3, [=](const Words& words) { rate(words, true, true); }}},
      {"uplink", {3, [=](const Words& words) { rate(words, true, false); }}},
      {"downlink", {3, [=](const Words& words) { rate(words, false, true); }}},
      {"delay",
       {4,
        [this](const Words& words) {
          for_paths(words, [&](Path& path) { path.delay_ns = whole(words[3]); });
        }}},
      {"jitter",
       {4,
        [this](const Words& words) {
          for_paths(words, [&](Path& path) { path.jitter_ns = whole(words[3]); });
        }}},
      {"loss",
       {4,
        [this](const Words& words) {
          for_paths(words, [&](Path& path) { path.loss = number(words[3], 1); });
        }}},
      {"queue", {2, [this](const Words& words) { fabric_.queue_bytes = whole(words[1]); }}},
      {"port",
       {3,
        [this](const Words& words) {
          for_ports(words[1], [&](std::size_t port) { set_state(port, words[2]); });
        }}},
  };
}

std::string Switch::obey(const std::string& line) {
  std::istringstream stream(line);
  const Words words{std::istream_iterator<std::string>(stream), {}};
  if (words == Words{"stats"}) return stats();
  const auto known = commands();
  const auto found = words.empty() ? known.end() : known.find(words[0]);
  if (found == known.end() || found->second.first != words.size()) {
    return "error: '" + line + "' is no command";
  }
  try {
    found->second.second(words);
  } catch (const std::exception& problem) {
    return "error: " + line + ": " + problem.what();
  }
  return "ok";
}

bool Switch::read_commands() {
  char buffer[512];
  const ssize_t got = read(STDIN_FILENO, buffer, sizeof buffer);
  if (got <= 0) return got < 0 && errno == EINTR;
  input_.append(buffer, static_cast<std::size_t>(got));
  for (std::size_t end; (end = input_.find('\n')) != std::string::npos;) {
    std::puts(obey(input_.substr(0, end)).c_str());
    input_.erase(0, end + 1);
  }
  std::fflush(stdout);
  return true;
}

void Switch::read_frames(std::size_t port) {
  for (int i = 0; i < frames_per_turn; ++i) {
    std::optional<Frame> frame = taps_.read(port);
    if (!frame) return;
    for (const std::size_t to : taps_.receivers(*frame)) {
      Frame copy = *frame;
      copy.to = to;
      fabric_.enter(std::move(copy), now_ns());
    }
  }
}

int Switch::wait(int poller, std::span<epoll_event> events) const {
  const auto most = static_cast<int>(events.size());
  const std::optional<std::uint64_t> at_ns = fabric_.next_ns();
  if (!at_ns) return epoll_wait(poller, events.data(), most, -1);
  const std::uint64_t now = now_ns();
  const std::uint64_t left_ns = *at_ns > now ? *at_ns - now : 0;
  const timespec timeout{static_cast<time_t>(left_ns / 1'000'000'000),
                         static_cast<long>(left_ns % 1'000'000'000)};
  return epoll_pwait2(poller, events.data(), most, &timeout, nullptr);
}

void Switch::run() {
  const int poller = epoll_create1(EPOLL_CLOEXEC);
  if (poller < 0) throw std::system_error(errno, std::generic_category(), "epoll_create1");
  for (std::size_t port = 0; port <= fabric_.ports(); ++port) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = port;
    const int fd = port < fabric_.ports() ? taps_.descriptor(port) : STDIN_FILENO;
    if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event) != 0) {
      throw std::system_error(errno, std::generic_category(), "watch a descriptor");
    }
  }
  std::puts("ready");
  std::fflush(stdout);
  std::vector<epoll_event> events(fabric_.ports() + 1);
  while (true) {
    const int ready = wait(poller, events);
    while (std::optional<Frame> frame = fabric_.next(now_ns())) taps_.write(*frame);
    for (int i = 0; i < ready; ++i) {
      const std::uint64_t port = events[static_cast<std::size_t>(i)].data.u64;
      if (port < fabric_.ports()) {
        read_frames(port);
      } else if (!read_commands()) {
        close(poller);
        return;
      }
    }
  }
}

// Ranks that spin must not make frames late. Where this is refused the switch works as well as it
// can.
void run_before_others() {
  prctl(PR_SET_TIMERSLACK, 1);
  const sched_param parameter{priority};
  sched_setscheduler(0, SCHED_FIFO, &parameter);
}

int run(const Words& arguments) {
  TapOptions options;
  std::uint64_t seed = 1;
  Words namespaces;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const bool has_value = i + 1 < arguments.size();
    if (argument == "--no-offload") {
      options.offload = false;
    } else if (argument == "--mtu" && has_value) {
      options.mtu = static_cast<int>(number(arguments[++i], 65535));
    } else if (argument == "--seed" && has_value) {
      seed = whole(arguments[++i]);
    } else {
      namespaces.push_back(argument);
    }
  }
  if (namespaces.empty() || namespaces.size() > ports_max) {
    throw std::invalid_argument("expected 1 to " + std::to_string(ports_max) + " namespaces");
  }
  Switch(namespaces, options, seed).run();
  return 0;
}

}  // namespace
}  // namespace netlab

int main(int count, char** arguments) {
  try {
    netlab::run_before_others();
    return netlab::run({arguments + 1, arguments + count});
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "netlab_switch: %s\n", problem.what());
    return 1;
  }
}
