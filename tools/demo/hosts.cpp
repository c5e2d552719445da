#include "tools/demo/hosts.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace pith::demo {
namespace {

constexpr int own_namespaces = CLONE_NEWNET | CLONE_NEWUTS;
// A token bucket smaller than a segmented packet (64 KiB and headers) would never let it pass.
constexpr std::size_t burst_bytes = std::size_t{128} * 1024;
constexpr std::size_t queue_bytes = std::size_t{1024} * 1024;

using Words = std::vector<std::string>;

std::runtime_error failure(const std::string& what, int error) {
  return std::runtime_error(fmt::format("{}: {}", what, std::strerror(error)));
}

// Forks a process in its own namespaces; returns once they exist.
pid_t start_holder(const std::string& name) {
  int ready[2];
  if (pipe2(ready, O_CLOEXEC) != 0) throw failure("pipe", errno);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int error = getppid() == parent ? 0 : ESRCH;
    if (error == 0 && unshare(own_namespaces) != 0) error = errno;
    if (error == 0 && sethostname(name.c_str(), name.size()) != 0) error = errno;
    const bool told = write(ready[1], &error, sizeof(error)) == sizeof(error);
    while (told && error == 0) pause();
    _exit(1);
  }
  close(ready[1]);
  int error = ECHILD;
  const bool answered = pid > 0 && read(ready[0], &error, sizeof(error)) == sizeof(error);
  close(ready[0]);
  if (pid < 0) throw failure("fork", errno);
  if (answered && error == 0) return pid;
  waitpid(pid, nullptr, 0);
  throw failure("network namespaces are refused here", error);
}

void end(pid_t pid) {
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

// The result of a command in the holder's namespaces: its waitpid() status and error output.
struct Ended {
  int status;
  std::string complaint;
};

Ended run(pid_t holder, Words words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  int errors[2];
  if (pipe2(errors, O_CLOEXEC) != 0) throw failure("pipe", errno);
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(errors[1], STDERR_FILENO);
    dup2(errors[1], STDOUT_FILENO);
    if (holder == 0 || Hosts::enter(holder)) execvp(pointers[0], pointers.data());
    _exit(127);
  }
  close(errors[1]);
  if (pid < 0) throw failure("fork", errno);
  Ended outcome{};
  char text[256];
  for (ssize_t got = 0; (got = read(errors[0], text, sizeof(text))) > 0;) {
    outcome.complaint.append(text, static_cast<std::size_t>(got));
  }
  close(errors[0]);
  waitpid(pid, &outcome.status, 0);
  return outcome;
}

void must_run(pid_t holder, const Words& words) {
  const Ended outcome = run(holder, words);
  if (outcome.status == 0) return;
  const std::string text = outcome.complaint.substr(0, outcome.complaint.find('\n'));
  throw std::runtime_error(
      fmt::format("{}: {}", fmt::join(words, " "), text.empty() ? "cannot be run" : text));
}

bool is_there(const char* program) { return run(0, {program, "-V"}).status == 0; }

bool enter_one(pid_t holder, const char* kind) {
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/%d/ns/%s", static_cast<int>(holder), kind);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool entered = setns(fd, 0) == 0;
  close(fd);
  return entered;
}

void shape(pid_t holder, const std::string& device, double bits_per_s) {
  must_run(holder, {"tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate",
                    fmt::format("{:.0f}bit", bits_per_s), "burst", std::to_string(burst_bytes),
                    "limit", std::to_string(queue_bytes)});
}

}  // namespace

bool Hosts::enter(pid_t holder) { return enter_one(holder, "net") && enter_one(holder, "uts"); }

std::string Hosts::unavailable() {
  for (const char* program : {"ip", "tc"}) {
    if (!is_there(program)) return fmt::format("there is no `{}` (package iproute2)", program);
  }
  try {
    const Hosts probe(1, 1e9);
    return {};
  } catch (const std::exception& error) {
    return error.what();
  }
}

Hosts::Hosts(int count, double bits_per_s) {
  try {
    hub_ = start_holder("hub");
    must_run(hub_, {"ip", "link", "add", "br0", "type", "bridge"});
    must_run(hub_, {"ip", "link", "set", "br0", "up"});
    for (int number = 0; number < count; ++number) {
      holders_.push_back(start_holder(fmt::format("host{}", number)));
      connect(number);
      limit_rate(number, bits_per_s);
    }
  } catch (...) {
    end_all();
    throw;
  }
}

Hosts::~Hosts() { end_all(); }

void Hosts::end_all() {
  for (const pid_t pid : holders_) end(pid);
  if (hub_ != 0) end(hub_);
}

void Hosts::connect(int number) {
  const pid_t host = holder(number);
  const std::string port = fmt::format("port{}", number);
  must_run(hub_, {"ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns",
                  std::to_string(host)});
  must_run(hub_, {"ip", "link", "set", port, "master", "br0", "up"});
  must_run(host, {"ip", "link", "set", "lo", "up"});
  must_run(host, {"ip", "addr", "add", fmt::format("10.77.0.{}/24", number + 1), "dev", "eth0"});
  must_run(host, {"ip", "link", "set", "eth0", "up"});
}

void Hosts::limit_rate(int number, double bits_per_s) {
  shape(holder(number), "eth0", bits_per_s);
  shape(hub_, fmt::format("port{}", number), bits_per_s);
}

void Hosts::set_rate(double bits_per_s) {
  for (std::size_t number = 0; number < holders_.size(); ++number) {
    limit_rate(static_cast<int>(number), bits_per_s);
  }
}

double sent_bytes() {
  std::ifstream devices("/proc/self/net/dev");
  for (std::string line; std::getline(devices, line);) {
    std::replace(line.begin(), line.end(), ':', ' ');
    std::istringstream fields(line);
    std::string name;
    fields >> name;
    if (name != "eth0") continue;
    double value = 0.0;
    constexpr int sent_is_field = 9;
    for (int field = 0; field < sent_is_field; ++field) fields >> value;
    return value;
  }
  return 0.0;
}

}  // namespace pith::demo
